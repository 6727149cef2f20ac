//! HTTP: from a request to a call of the API, and back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use super::api::{Answer, Api, User, WriteOptions, Written};
use super::control::{self, Control, Order};
use super::decode::{Format, mend, read, read_document};
use super::delete::Deleted;
use super::negotiate::{self, Shape, Wanted};
use super::openapi::Documents;
use super::options::{self, Parameters};
use super::render::{self, Body, Include, View};
use super::route::{Place, Route, parse};
use super::subresource::{ScaleChange, scale_of};
use super::write::{Patch, part, unsupported_patch};
use super::{discovery, protobuf, reviews};
use crate::kinds::{Kind, Registry, Subresource};
use crate::status::ApiError;

/// The largest body Kubernetes takes.
const BODY_MAX_BYTES: usize = 3 * 1024 * 1024;
/// Beyond this a body that is too large is not even read to its end.
const BODY_DROPPED_MAX_BYTES: usize = 64 * 1024 * 1024;
/// A client must have sent its body by then.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const PLAIN: Wanted = Wanted { format: Format::Json, shape: Shape::Object, pretty: false, of_one: false };

/// What all requests of a server share.
pub(super) struct Shared {
    pub(super) api: Arc<Api>,
    pub(super) address: String,
    pub(super) shutdown: tokio::sync::watch::Receiver<bool>,
    pub(super) documents: Documents,
    pub(super) control: Option<Arc<dyn Control>>,
}

/// One request, taken apart.
struct Call<'a> {
    shared: &'a Shared,
    user: Arc<User>,
    method: Method,
    headers: HeaderMap,
    parameters: Parameters,
    wanted: Wanted,
}

/// Answers any request; a bug in the answer is a 500 and no more.
pub(super) async fn serve(
    shared: Arc<Shared>,
    user: Option<Arc<User>>,
    request: Request<Incoming>,
) -> Response<Body> {
    let answer = AssertUnwindSafe(answer(&shared, user, request)).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|_| {
        tracing::error!("a request handler panicked");
        render::error(&ApiError::internal("the server made a mistake"), PLAIN)
    });
    let headers = response.headers_mut();
    headers.insert("audit-id", value(&shared.api.ids().uid()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

async fn answer(shared: &Shared, user: Option<Arc<User>>, request: Request<Incoming>) -> Response<Body> {
    let Some(user) = user else { return render::error(&ApiError::unauthorized(), PLAIN) };
    let (head, body) = request.into_parts();
    let parameters = Parameters::parse(head.uri.query().unwrap_or_default());
    let pretty = wants_pretty(&parameters, text(&head.headers, header::USER_AGENT));
    let mut call =
        Call { shared, user, method: head.method, headers: head.headers, parameters, wanted: PLAIN };
    call.wanted.pretty = pretty;
    let path = head.uri.path();
    let accept = text(&call.headers, header::ACCEPT).to_owned();
    let result = match parse(path) {
        Route::Control(path) => call.order(path, body).await,
        Route::Resource(place) => call.resource(place, body).await,
        route => call.fixed(route),
    };
    let format = negotiate::accept(&accept).map_or(PLAIN.format, |wanted| wanted.format);
    let plain = Wanted { pretty, format, ..PLAIN };
    match result {
        Ok(response) => response,
        Err(Refusal::Api(error)) => render::error(&error, plain),
        Err(Refusal::Warned(error, warnings)) => {
            let mut response = render::error(&error, plain);
            warn(&mut response, &warnings);
            response
        }
        // Paths of built-in groups are answered by their routes, all others by nobody.
        Err(Refusal::Nowhere) if is_routed(&shared.api.registry(), path) => {
            render::error(&ApiError::no_such_path(), plain)
        }
        Err(Refusal::Nowhere) => render::text(404, "404 page not found\n"),
    }
}

/// Why a request gets no answer of its own.
enum Refusal {
    Api(ApiError),
    /// Refused, and the body already gave reason to warn.
    Warned(ApiError, Vec<String>),
    /// The path leads nowhere.
    Nowhere,
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        Refusal::Api(error)
    }
}

fn is_routed(registry: &Registry, path: &str) -> bool {
    let mut segments = path.split('/').skip(1);
    match (segments.next(), segments.next()) {
        (Some("api" | "version"), _) => true,
        (Some("apis"), Some(group)) => {
            let kinds = registry.group(group).into_iter().flat_map(|group| &group.versions);
            kinds.flat_map(|version| version.kinds.values()).any(|kind| kind.custom.is_none())
        }
        _ => false,
    }
}

/// Asked for, or a person with curl.
fn wants_pretty(parameters: &Parameters, agent: &str) -> bool {
    match parameters.text("pretty") {
        "" => ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool)),
        text => ["1", "t", "T", "true", "True", "TRUE"].contains(&text),
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("invalid"))
}

/// The old form of OpenAPI describes nothing: kubectl looks there only for kinds that the new one does not have, and
/// must not stumble.
fn old_openapi(accept: &str) -> Response<Body> {
    match accept.contains("protobuf") {
        // A document whose only field is its version: "2.0".
        true => render::respond(200, render::full(&b"\x0a\x032.0"[..]), OPENAPI_PROTOBUF),
        false => {
            let document =
                serde_json::json!({"swagger": "2.0", "info": {"title": "Kubernetes"}, "paths": {}});
            render::tree(200, &document, PLAIN)
        }
    }
}

/// A warning as a header: code 299, no agent, quoted text.
fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let clean: String = warning.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let quoted = clean.replace('\\', "\\\\").replace('"', "\\\"");
        response.headers_mut().append(header::WARNING, value(&format!("299 - \"{quoted}\"")));
    }
}

impl Call<'_> {
    /// Everything that is not a resource.
    fn fixed(&self, route: Route) -> Result<Response<Body>, Refusal> {
        if self.method != Method::GET && self.method != Method::HEAD {
            return Err(match route {
                Route::Nowhere => Refusal::Nowhere,
                _ => ApiError::method_not_allowed().into(),
            });
        }
        let registry = self.shared.api.registry();
        let accept = text(&self.headers, header::ACCEPT);
        let aggregated = negotiate::aggregated_discovery(accept);
        if matches!(route, Route::CoreVersions | Route::Groups) {
            negotiate::check_discovery(accept)?;
        }
        let found = match &route {
            Route::Health => return Ok(render::text(200, "ok")),
            Route::Nowhere => None,
            Route::Version => Some(discovery::version()),
            Route::CoreVersions | Route::Groups if aggregated.is_some() => {
                let version = aggregated.unwrap_or_default();
                let document = discovery::aggregated(&registry, route == Route::CoreVersions, version);
                let mut response = render::tree(200, &document, self.wanted);
                let media =
                    format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
                response.headers_mut().insert(header::CONTENT_TYPE, value(&media));
                return Ok(response);
            }
            Route::CoreVersions => Some(discovery::core_versions(&self.shared.address)),
            Route::Groups => Some(discovery::groups(&registry)),
            Route::Group(name) => discovery::group(&registry, name),
            Route::Resources { group, version } => discovery::resources(&registry, group, version),
            Route::OldOpenApi => return Ok(old_openapi(accept)),
            Route::Root => Some(discovery::paths(&registry)),
            Route::OpenApi(path) => {
                let Some(document) = self.shared.documents.get(&registry, path) else {
                    return Ok(render::empty(404));
                };
                // The index is text in Kubernetes, too.
                let media = if path.is_empty() { render::TEXT } else { "application/json" };
                return Ok(render::respond(200, render::full(document), media));
            }
            Route::Resource(_) | Route::Control(_) => None,
        };
        let document = found.ok_or(Refusal::Nowhere)?;
        Ok(render::tree(200, &document, self.wanted))
    }

    /// A request about the sandbox itself.
    async fn order(&self, path: Vec<String>, body: Incoming) -> Result<Response<Body>, Refusal> {
        let control = self.shared.control.as_ref().ok_or(Refusal::Nowhere)?;
        let body = collect(body, control::BODY_MAX_BYTES).await?;
        let order = Order { method: self.method.clone(), path, body };
        Ok(render::tree(200, &control.carry_out(order).await?, self.wanted))
    }

    async fn resource(mut self, place: Place, body: Incoming) -> Result<Response<Body>, Refusal> {
        let registry = self.shared.api.registry();
        let found = registry.find(&place.group, &place.version, &place.plural).cloned();
        let kind = found.ok_or(Refusal::Nowhere)?;
        if kind.namespaced && place.namespace.is_empty() && !place.name.is_empty()
            || !kind.namespaced && !place.namespace.is_empty()
        {
            return Err(Refusal::Nowhere);
        }
        let pretty = self.wanted.pretty;
        let accept = text(&self.headers, header::ACCEPT);
        if kind.custom.is_none() {
            negotiate::check_route(accept, place.name.is_empty())?;
        }
        self.wanted = negotiate::accept(accept)?;
        self.wanted.pretty |= pretty;
        let mut body = read_body(body).await?;
        if negotiate::media(text(&self.headers, header::CONTENT_TYPE)) == negotiate::PROTOBUF
            && !body.is_empty()
        {
            let tree = protobuf::read(&body)
                .ok_or_else(|| ApiError::unsupported_media_type("application/json, application/yaml"))?;
            body = Bytes::from(tree.to_string());
            self.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = mend(body);
        // Custom resources take what is sent to a name as sent to the collection, and the other way round.
        let is_loose = kind.custom.is_some() && place.subresource.is_empty();
        let is_collection = place.name.is_empty() || is_loose && self.method == Method::POST;
        if is_loose && place.name.is_empty() && matches!(self.method, Method::PUT | Method::PATCH) {
            return Err(ApiError::bad_request("name must be provided").into());
        }
        let mut response = match (is_collection, place.subresource.is_empty()) {
            (true, _) => self.collection(&kind, &place, &body).await,
            (false, true) => self.item(&kind, &place, &body).await,
            (false, false) => self.subresource(&kind, &place, &body).await,
        }?;
        if let Some(text) = kind.custom.as_ref().and_then(|custom| custom.deprecation.clone()) {
            warn(&mut response, &[text]);
        }
        Ok(response)
    }

    fn view(&self, kind: &Arc<Kind>) -> Result<View, ApiError> {
        let include = match self.wanted.shape {
            Shape::Table => Include::parse(self.parameters.text("includeObject"))?,
            _ => Include::default(),
        };
        let now = self.shared.api.now();
        Ok(View { kind: kind.clone(), wanted: self.wanted, include, now, with_columns: true })
    }

    fn options(&self, kind: &str) -> Result<WriteOptions, ApiError> {
        let agent = text(&self.headers, header::USER_AGENT);
        self.parameters.write_options(self.user.clone(), agent, kind)
    }

    fn body_format(&self) -> Result<Format, ApiError> {
        negotiate::content_type(text(&self.headers, header::CONTENT_TYPE))
    }

    async fn collection(
        &self,
        kind: &Arc<Kind>,
        place: &Place,
        body: &[u8],
    ) -> Result<Response<Body>, Refusal> {
        let api = &self.shared.api;
        match self.method {
            Method::GET if kind.allows("list") => self.list(kind, place, ""),
            Method::POST if kind.allows("create") => {
                if kind.namespaced && place.namespace.is_empty() {
                    return Err(ApiError::method_not_allowed().into());
                }
                let format = self.body_format()?;
                let options = self.options("CreateOptions")?;
                let read = read(kind, format, body, options.validation)?;
                if kind.group.is_empty() && kind.plural == "bindings" {
                    let mut binding = read.object;
                    // Only through pods/binding does a pod take over its node's topology.
                    if binding["target"]["kind"] == "Node" {
                        binding["target"]["kind"] = "".into();
                    }
                    let place = (place.namespace.as_str(), crate::kinds::meta::name(&binding));
                    let status = api.bind(place, &binding, &options).await?;
                    return Ok(render::tree(201, &status, self.wanted));
                }
                if reviews::is_review(kind) {
                    let answer = reviews::answer(api, kind, &place.namespace, read.object, &options.user)?;
                    return Ok(render::tree(201, &answer, self.wanted));
                }
                let warnings = read.warnings.clone();
                let written = api.create_read(kind, &place.namespace, read, &options).await;
                self.written(kind, &written.map_err(|error| Refusal::Warned(error, warnings))?)
            }
            Method::DELETE if kind.allows("deletecollection") => {
                if kind.namespaced && place.namespace.is_empty() {
                    return Err(ApiError::method_not_allowed().into());
                }
                let options = self.delete_options(body)?;
                let list = self.parameters.list_options()?;
                list.validate()?;
                let selection = list.selection(kind, &place.namespace, "")?;
                let items = api.delete_collection(kind, &selection, &options).await?;
                let revision = api.revision();
                let page = crate::store::Page { items, revision, remaining: 0 };
                let listing = super::list::Listing { page, continue_token: String::new(), remaining: None };
                Ok(self.view(kind)?.list(listing))
            }
            _ => Err(ApiError::method_not_allowed().into()),
        }
    }

    fn list(&self, kind: &Arc<Kind>, place: &Place, name: &str) -> Result<Response<Body>, Refusal> {
        let api = &self.shared.api;
        let mut options = self.parameters.list_options()?;
        options.watch |= place.is_watch;
        options.validate()?;
        let selection = options.selection(kind, &place.namespace, name)?;
        let view = self.view(kind)?;
        if !options.watch {
            self.wanted.check_list(kind)?;
        }
        match options.watch {
            true => Ok(api.serve_watch(view, selection, &options, self.shared.shutdown.clone())?),
            false => Ok(view.list(api.list_page(kind, &selection, &options)?)),
        }
    }

    async fn item(&self, kind: &Arc<Kind>, place: &Place, body: &[u8]) -> Result<Response<Body>, Refusal> {
        let api = &self.shared.api;
        let (namespace, name) = (place.namespace.as_str(), place.name.as_str());
        match self.method {
            Method::GET if place.is_watch => self.list(kind, place, name),
            Method::GET | Method::HEAD if kind.allows("get") => {
                let stored = api.get(kind, namespace, name)?;
                self.check_revision()?;
                Ok(self.view(kind)?.answer(200, &Answer::Stored(stored)))
            }
            Method::PUT if kind.allows("update") => {
                let format = self.body_format()?;
                let options = self.options("UpdateOptions")?;
                let read = read(kind, format, body, options.validation)?;
                let warnings = read.warnings.clone();
                let part = super::api::Part::Main;
                let written = api.update_read(kind, namespace, name, part, read, &options).await;
                self.written(kind, &written.map_err(|error| Refusal::Warned(error, warnings))?)
            }
            Method::PATCH if kind.allows("patch") => {
                let (patch, options) = self.patch(kind, body)?;
                let part = super::api::Part::Main;
                let written = api.patch(kind, (namespace, name), part, &patch, &options).await?;
                self.written(kind, &written)
            }
            Method::DELETE if kind.allows("delete") => {
                let options = self.delete_options(body)?;
                let Deleted { answer, is_gone, warnings } =
                    api.delete(kind, (namespace, name), &options).await?;
                let code = if !is_gone && options.orphan == Some(false) { 202 } else { 200 };
                let mut response = self.view(kind)?.answer(code, &answer);
                warn(&mut response, &warnings);
                Ok(response)
            }
            _ => Err(ApiError::method_not_allowed().into()),
        }
    }

    /// A get may ask for an object at least as new as a revision.
    fn check_revision(&self) -> Result<(), ApiError> {
        let options = self.parameters.list_options()?;
        let wanted = options.revision_number().map_err(super::list::BadRevision::of_one)?;
        let current = self.shared.api.revision();
        if wanted > current { Err(super::list::too_large(wanted, current)) } else { Ok(()) }
    }

    async fn subresource(
        &self,
        kind: &Arc<Kind>,
        place: &Place,
        body: &[u8],
    ) -> Result<Response<Body>, Refusal> {
        let api = &self.shared.api;
        let (namespace, name) = (place.namespace.as_str(), place.name.as_str());
        let Some(found) = kind.find_subresource(&place.subresource) else {
            return Err(match kind.custom {
                Some(_) => kind.not_found(name).into(),
                None => Refusal::Nowhere,
            });
        };
        match found {
            Subresource::Scale(_) => self.scale(kind, place, body).await,
            Subresource::Binding | Subresource::Eviction => {
                if self.method != Method::POST {
                    return Err(ApiError::method_not_allowed().into());
                }
                let options = self.options("CreateOptions")?;
                let wanted = match found {
                    Subresource::Binding => Kind::builtin("v1", "Binding", "bindings"),
                    _ => Kind::builtin("policy/v1", "Eviction", "evictions"),
                };
                let object = read(&wanted, self.body_format()?, body, options.validation)?.object;
                let status = match found {
                    Subresource::Binding => api.bind((namespace, name), &object, &options).await?,
                    _ => api.evict((namespace, name), &object, &options).await?,
                };
                Ok(render::tree(201, &status, self.wanted))
            }
            _ => {
                let Some(part) = part(kind, &place.subresource) else { return Err(Refusal::Nowhere) };
                match self.method {
                    Method::GET => {
                        let stored = api.get(kind, namespace, name)?;
                        Ok(self.view(kind)?.answer(200, &Answer::Stored(stored)))
                    }
                    Method::PUT => {
                        let format = self.body_format()?;
                        let options = self.options("UpdateOptions")?;
                        let read = read(kind, format, body, options.validation)?;
                        let written = api.update_read(kind, namespace, name, part, read, &options).await?;
                        self.written(kind, &written)
                    }
                    Method::PATCH => {
                        let (patch, options) = self.patch(kind, body)?;
                        let written = api.patch(kind, (namespace, name), part, &patch, &options).await?;
                        self.written(kind, &written)
                    }
                    _ => Err(ApiError::method_not_allowed().into()),
                }
            }
        }
    }

    async fn scale(&self, kind: &Arc<Kind>, place: &Place, body: &[u8]) -> Result<Response<Body>, Refusal> {
        let api = &self.shared.api;
        let (namespace, name) = (place.namespace.as_str(), place.name.as_str());
        let written = match self.method {
            Method::GET => {
                let stored = api.get(kind, namespace, name)?;
                let paths = api.scale_paths(kind).ok_or_else(ApiError::no_such_path)?;
                let scale = scale_of(&super::api::load(kind, &stored), paths);
                return Ok(render::tree(200, &scale, self.wanted));
            }
            Method::PUT => {
                let options = self.options("UpdateOptions")?;
                let wanted = Kind::builtin("autoscaling/v1", "Scale", "scales");
                let scale = read(&wanted, self.body_format()?, body, options.validation)?.object;
                api.write_scale(kind, (namespace, name), ScaleChange::Replace(&scale), &options).await?
            }
            Method::PATCH => {
                let (patch, options) = self.patch(kind, body)?;
                api.write_scale(kind, (namespace, name), ScaleChange::Patch(&patch), &options).await?
            }
            _ => return Err(ApiError::method_not_allowed().into()),
        };
        self.written(kind, &written)
    }

    fn written(&self, kind: &Arc<Kind>, written: &Written) -> Result<Response<Body>, Refusal> {
        let code = if written.created { 201 } else { 200 };
        let mut response = self.view(kind)?.answer(code, &written.answer);
        warn(&mut response, &written.warnings);
        Ok(response)
    }

    fn patch(&self, kind: &Kind, body: &[u8]) -> Result<(Patch, WriteOptions), ApiError> {
        let media = negotiate::media(text(&self.headers, header::CONTENT_TYPE));
        let patch = match media {
            "application/json-patch+json" => Patch::Json(body.to_vec()),
            "application/merge-patch+json" => Patch::Merge(body.to_vec()),
            "application/strategic-merge-patch+json" if kind.custom.is_none() => {
                Patch::Strategic(body.to_vec())
            }
            "application/apply-patch+yaml" => {
                let options = self.options("ApplyOptions")?;
                let wanted = read_document(Format::Yaml, body).map_err(|e| {
                    let why = e.message;
                    ApiError::bad_request(format!(
                        "error decoding YAML: error converting YAML to JSON: yaml: {why}"
                    ))
                })?;
                return Ok((Patch::Apply(wanted), options));
            }
            _ if kind.custom.is_none() => return Err(ApiError::unsupported_by_route()),
            _ => return Err(unsupported_patch(kind)),
        };
        Ok((patch, self.options("PatchOptions")?))
    }

    fn delete_options(&self, body: &[u8]) -> Result<super::delete::DeleteOptions, ApiError> {
        let write = self.options("DeleteOptions")?;
        if body.is_empty() {
            return self.parameters.delete_options(write);
        }
        let body = options::read_delete_options(self.body_format()?, body)?;
        options::delete_options(&body, &WriteOptions { dry_run: false, ..write })
    }
}

/// Reads a body up to the limit. What is beyond it is read and dropped, within reason, for a client
/// that is cut off while sending never sees the answer.
async fn read_body(body: Incoming) -> Result<Bytes, ApiError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let read = tokio::time::timeout(BODY_TIMEOUT, collect(body, BODY_MAX_BYTES)).await;
    read.unwrap_or_else(|_| Err(ApiError::new(408, "Timeout", "the body did not arrive in time")))
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, ApiError> {
    let mut kept = BytesMut::new();
    let mut seen = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::bad_request(format!("the body could not be read: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= limit {
            kept.extend_from_slice(&data);
        } else if seen - limit > BODY_DROPPED_MAX_BYTES {
            break;
        }
    }
    match seen > limit {
        true => Err(ApiError::too_large(&format!("limit is {limit}"))),
        false => Ok(kept.freeze()),
    }
}
