//! Watches on the wire: what is there, what changes, bookmarks, and an end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::api::Api;
use super::list::{BadRevision, ListOptions};
use super::render::{Body, View, respond};
use crate::status::ApiError;
use crate::store::{Change, Event, Expired, Filter, Query, Selection, Stored, Watch};

/// Events taken from the history at once: bounds the memory of a slow client.
const BATCH: usize = 64;
/// How often an idle watch is told the revision it has reached.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Kubernetes ends watches after 30 to 60 minutes.
const TIMEOUT_MIN_SECONDS: u64 = 1800;

/// One client's watch.
struct Watching {
    view: View,
    selection: Selection,
    watch: Watch,
    initial: VecDeque<Arc<Stored>>,
    /// The bookmark that ends the initial events is still to be sent.
    marks_end: bool,
    bookmarks: bool,
    ready: VecDeque<Bytes>,
    deadline: Instant,
    next_bookmark: Instant,
    shutdown: tokio::sync::watch::Receiver<bool>,
    is_over: bool,
}

impl Api {
    /// Starts a watch. A revision that is too old is reported in the stream, as Kubernetes does.
    pub(super) fn serve_watch(
        &self,
        view: View,
        selection: Selection,
        options: &ListOptions,
        shutdown: tokio::sync::watch::Receiver<bool>,
    ) -> Result<Response<Body>, ApiError> {
        options.validate()?;
        let from = options.revision_number().map_err(BadRevision::of_one)?;
        let table = self.table(&view.kind);
        let wants_initial = options.wants_initial_events();
        let (initial, watch) = match wants_initial {
            true => {
                let (page, watch) = table.snapshot(&|object| selection.matches(object));
                (page.items, Ok(watch))
            }
            false => {
                let from = if from == 0 { table_revision(self, &table) } else { from };
                (Vec::new(), table.watch(from))
            }
        };
        let watch = match watch {
            Ok(watch) => watch,
            Err(expired) => {
                return Ok(respond(200, super::render::full(error_frame(&too_old(expired))), JSON));
            }
        };
        let spread = self.ids().next() % TIMEOUT_MIN_SECONDS;
        let seconds = options.timeout_seconds.filter(|s| *s > 0).unwrap_or(TIMEOUT_MIN_SECONDS + spread);
        let now = Instant::now();
        let watching = Watching {
            view,
            selection,
            watch,
            initial: initial.into(),
            marks_end: wants_initial && options.allow_bookmarks,
            bookmarks: options.allow_bookmarks,
            ready: VecDeque::new(),
            deadline: now + Duration::from_secs(seconds),
            next_bookmark: now + BOOKMARK_EVERY,
            shutdown,
            is_over: false,
        };
        let frames = stream::unfold(watching, |mut watching| async move {
            let bytes = watching.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), watching))
        });
        Ok(respond(200, StreamBody::new(frames).boxed_unsync(), JSON))
    }
}

const JSON: &str = "application/json";

fn table_revision(api: &Api, table: &crate::store::Table) -> u64 {
    let query = Query { limit: Some(0), ..Query::default() };
    table.page(query, &|_| false).map_or_else(|_| api.revision(), |page| page.revision)
}

fn too_old(expired: Expired) -> ApiError {
    ApiError::expired(format!("too old resource version: {} ({})", expired.asked, expired.oldest))
}

fn error_frame(error: &ApiError) -> Bytes {
    let event = json!({"type": "ERROR", "object": error.to_status()});
    Bytes::from(format!("{event}\n"))
}

impl Watching {
    /// The next piece of the stream; None at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Some(bytes);
            }
            if self.is_over {
                return None;
            }
            if !self.initial.is_empty() {
                self.send_initial();
                continue;
            }
            if std::mem::take(&mut self.marks_end) {
                let seen = self.watch.seen();
                self.ready.push_back(self.bookmark(seen, true));
                continue;
            }
            match self.watch.take(BATCH) {
                Err(expired) => {
                    self.is_over = true;
                    return Some(error_frame(&too_old(expired)));
                }
                Ok(events) if events.is_empty() => self.wait().await,
                Ok(events) => events.iter().for_each(|event| self.show(event)),
            }
        }
    }

    async fn wait(&mut self) {
        tokio::select! {
            () = self.watch.changed() => {}
            () = sleep_until(self.deadline) => {
                self.is_over = true;
                if self.bookmarks {
                    let seen = self.watch.seen();
                    self.ready.push_back(self.bookmark(seen, false));
                }
            }
            () = sleep_until(self.next_bookmark), if self.bookmarks => {
                self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                let seen = self.watch.seen();
                self.ready.push_back(self.bookmark(seen, false));
            }
            _ = self.shutdown.changed() => self.is_over = true,
        }
    }

    fn send_initial(&mut self) {
        const PIECE_BYTES: usize = 64 * 1024;
        let mut out = Vec::with_capacity(PIECE_BYTES);
        while out.len() < PIECE_BYTES {
            let Some(object) = self.initial.pop_front() else { break };
            self.write_event(&mut out, Change::Added, &object);
        }
        self.ready.push_back(Bytes::from(out));
    }

    fn show(&mut self, event: &Event) {
        let object = &event.object;
        match self.selection.filter(event) {
            Filter::Unseen => {}
            Filter::Same if self.view.takes_frames() => self.ready.push_back(object.frame()),
            Filter::Same => self.push(event.change, object),
            Filter::Entered => self.push(Change::Added, object),
            Filter::Left => {
                if let Some(previous) = &event.previous {
                    let last = previous.at_revision(event.revision(), Change::Deleted);
                    self.push(Change::Deleted, &last);
                }
            }
        }
    }

    fn push(&mut self, change: Change, object: &Stored) {
        let mut out = Vec::new();
        self.write_event(&mut out, change, object);
        self.ready.push_back(Bytes::from(out));
    }

    fn write_event(&mut self, out: &mut Vec<u8>, change: Change, object: &Stored) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(change.text().as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        self.view.write_object(out, object);
        self.view.with_columns = false;
        out.extend_from_slice(b"}\n");
    }

    fn bookmark(&self, revision: u64, ends_initial: bool) -> Bytes {
        let kind = &self.view.kind;
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        let event = json!({"type": "BOOKMARK", "object": object});
        Bytes::from(format!("{event}\n"))
    }
}
