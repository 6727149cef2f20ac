//! Answers on the wire: objects, lists, tables and metadata, copied from rest where possible.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Answer, load};
use super::decode::Format;
use super::list::Listing;
use super::negotiate::{Shape, Wanted};
use crate::kinds::{Column, Kind, meta};
use crate::status::ApiError;
use crate::store::Stored;

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Pieces of a long answer: large enough to be worth a packet, small enough to hold many.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a Table row carries beside its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    pub(super) fn parse(text: &str) -> Result<Include, ApiError> {
        match text {
            "None" => Ok(Include::None),
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            other => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                crate::kinds::quote(other)
            ))),
        }
    }
}

/// How one request wants its objects.
#[derive(Clone)]
pub(super) struct View {
    pub kind: Arc<Kind>,
    pub wanted: Wanted,
    pub include: Include,
    pub now: Timestamp,
    /// A watch tells the columns of its Tables once.
    pub with_columns: bool,
}

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A code and nothing else.
pub(super) fn empty(code: u16) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

pub(super) fn text(code: u16, body: &'static str) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(TEXT));
    headers.insert("x-content-type-options", header::HeaderValue::from_static("nosniff"));
    response
}

/// A tree in the format wanted.
pub(super) fn tree(code: u16, value: &Value, wanted: Wanted) -> Response<Body> {
    let (body, media) = match (wanted.format, wanted.pretty) {
        (Format::Yaml, _) => (serde_saphyr::to_string(value).unwrap_or_default(), "application/yaml"),
        (Format::Json, true) => {
            (format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()), "application/json")
        }
        (Format::Json, false) => (format!("{value}\n"), "application/json"),
    };
    respond(code, full(body), media)
}

pub(super) fn error(error: &ApiError, wanted: Wanted) -> Response<Body> {
    let mut response = tree(error.code, &error.to_status(), wanted);
    let retry = error.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(retry));
    }
    response
}

pub(super) fn respond(code: u16, body: Body, media: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}

impl View {
    /// Whether objects can be sent as they rest.
    fn is_plain(&self) -> bool {
        self.wanted.format == Format::Json && !self.wanted.pretty && !self.kind.converts()
    }

    pub(super) fn answer(&self, code: u16, answer: &Answer) -> Response<Body> {
        match answer {
            Answer::Stored(stored) if self.is_plain() && self.wanted.shape == Shape::Object => {
                let json = stored.json();
                let mut body = BytesMut::with_capacity(json.len() + 1);
                body.extend_from_slice(&json);
                body.extend_from_slice(b"\n");
                respond(code, full(body.freeze()), "application/json")
            }
            Answer::Stored(stored) => tree(code, &self.shaped(load(&self.kind, stored)), self.wanted),
            // A Status or a Scale is what it is.
            Answer::Tree(value) if value["kind"] != self.kind.kind.as_ref() => tree(code, value, self.wanted),
            Answer::Tree(value) => tree(code, &self.shaped(value.clone()), self.wanted),
        }
    }

    /// One object in the shape wanted.
    fn shaped(&self, object: Value) -> Value {
        match self.wanted.shape {
            Shape::Object => object,
            Shape::Metadata => partial(&object),
            Shape::Table => {
                let version = object["metadata"]["resourceVersion"].clone();
                let row = self.row(&object);
                let mut table = self.table_head();
                table["metadata"] = json!({"resourceVersion": version});
                table["rows"] = json!([row]);
                table
            }
        }
    }

    pub(super) fn list(&self, listing: Listing) -> Response<Body> {
        let head = self.list_head(&listing);
        if self.wanted.format == Format::Yaml || self.wanted.pretty {
            let pieces = Pieces::new(self.clone(), head, listing.page.items);
            let json: Vec<u8> = pieces.flatten().collect();
            let value = serde_json::from_slice(&json).unwrap_or(Value::Null);
            return tree(200, &value, self.wanted);
        }
        let pieces = Pieces::new(self.clone(), head, listing.page.items);
        let frames = stream::iter(pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece))));
        respond(200, StreamBody::new(frames).boxed_unsync(), "application/json")
    }

    fn list_head(&self, listing: &Listing) -> Value {
        let mut metadata = json!({"resourceVersion": listing.page.revision.to_string()});
        let is_bare = self.kind.custom.is_some() && self.wanted.shape == Shape::Object;
        if !listing.continue_token.is_empty() || is_bare {
            metadata["continue"] = json!(listing.continue_token);
        }
        if let Some(remaining) = listing.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let mut head = match self.wanted.shape {
            Shape::Object => {
                json!({"kind": format!("{}List", self.kind.kind), "apiVersion": self.kind.api_version()})
            }
            Shape::Metadata => json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}),
            Shape::Table => self.table_head(),
        };
        head["metadata"] = metadata;
        head
    }

    fn table_head(&self) -> Value {
        let columns = match self.with_columns {
            true => Value::Array(self.columns().iter().map(column).collect()),
            false => Value::Null,
        };
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": columns})
    }

    fn columns(&self) -> Vec<Column> {
        if !self.kind.columns.is_empty() {
            return self.kind.columns.clone();
        }
        let name = Column { format: "name".into(), ..Column::new("Name", "string", 0, NAME_DESCRIPTION) };
        vec![name, Column::new("Created At", "date", 0, CREATED_DESCRIPTION)]
    }

    fn row(&self, object: &Value) -> Value {
        let cells = match self.kind.columns.is_empty() {
            true => vec![json!(meta::name(object)), object["metadata"]["creationTimestamp"].clone()],
            false => self.kind.row(object, self.now),
        };
        let mut row = json!({"cells": cells});
        if let Some(conditions) = (self.kind.hooks.row_conditions)(object) {
            row["conditions"] = conditions;
        }
        match self.include {
            Include::None => row["object"] = Value::Null,
            Include::Metadata => row["object"] = partial(object),
            Include::Object => row["object"] = object.clone(),
        }
        row
    }

    /// Appends one object as an item of a list.
    fn write_item(&self, out: &mut Vec<u8>, stored: &Stored) {
        match self.wanted.shape {
            Shape::Object if self.kind.converts() => write_json(out, &load(&self.kind, stored)),
            // Items of built-in lists go without kind and apiVersion, custom ones with.
            Shape::Object if self.kind.custom.is_some() => out.extend_from_slice(&stored.json()),
            Shape::Object => {
                out.push(b'{');
                out.extend_from_slice(stored.json_untyped());
            }
            Shape::Metadata => write_partial(out, stored),
            Shape::Table => write_json(out, &self.row(&load(&self.kind, stored))),
        }
    }

    /// Appends the object of a watch event.
    pub(super) fn write_object(&self, out: &mut Vec<u8>, stored: &Stored) {
        match self.wanted.shape {
            Shape::Object if self.kind.converts() => write_json(out, &load(&self.kind, stored)),
            Shape::Object => out.extend_from_slice(&stored.json()),
            Shape::Metadata => write_partial(out, stored),
            Shape::Table => write_json(out, &self.shaped(load(&self.kind, stored))),
        }
    }

    /// Whether a watch can send the frames made at commit.
    pub(super) fn takes_frames(&self) -> bool {
        self.wanted.shape == Shape::Object && !self.kind.converts()
    }
}

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, \
    although some resources may allow a client to request the generation of an appropriate name automatically. \
    Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More \
    info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object \
    was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not \
    set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null \
    for lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

fn column(column: &Column) -> Value {
    json!({"name": column.name, "type": column.kind, "format": column.format,
        "description": column.description, "priority": column.priority})
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn write_partial(out: &mut Vec<u8>, stored: &Stored) {
    out.extend_from_slice(br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#);
    out.extend_from_slice(stored.json_metadata());
    out.push(b'}');
}

fn write_json(out: &mut Vec<u8>, value: &Value) {
    // A Vec takes all bytes.
    let _ = write!(out, "{value}");
}

/// A list cut into pieces, made one by one as the client reads.
struct Pieces {
    view: View,
    /// Everything before the first item, until sent.
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Stored>>,
    is_first: bool,
    is_done: bool,
}

impl Pieces {
    fn new(view: View, head: Value, items: Vec<Arc<Stored>>) -> Pieces {
        let list = if view.wanted.shape == Shape::Table { "rows" } else { "items" };
        let mut text = head.to_string();
        text.pop();
        text.push_str(&format!(",\"{list}\":["));
        Pieces {
            view,
            head: Some(text.into_bytes()),
            items: items.into_iter(),
            is_first: true,
            is_done: false,
        }
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut out = self.head.take().unwrap_or_default();
        out.reserve(CHUNK_BYTES);
        while out.len() < CHUNK_BYTES {
            let Some(item) = self.items.next() else {
                out.extend_from_slice(b"]}\n");
                self.is_done = true;
                break;
            };
            if !std::mem::take(&mut self.is_first) {
                out.push(b',');
            }
            self.view.write_item(&mut out, &item);
        }
        Some(Bytes::from(out))
    }
}
