//! The worker of a watch cache: lists, watches, resumes, and lists again when it must.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::core::Request;
use kube::core::params::{ListParams, WatchParams};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::split::Splitter;
use super::store::Outcome;
use super::wire::{Decoded, Decoder, Head, Line, Page, PageMeta};
use super::{Options, Phase, Shared, Source};
use crate::client::service::{ReadInPieces, RetryPolicy};
use crate::log::chain;
use crate::metrics::{KindLabels, RelistLabels};
use crate::random;

/// The server is asked to end a watch after this many seconds, more or less, so that watches do not pile up on one
/// replica for ever. Kube refuses 295 and more.
const WATCH_SECONDS: u32 = 230;
const WATCH_SECONDS_SPREAD: u64 = 60;

/// The server sends a bookmark about every minute. This long a silence means that the connection is dead.
const IDLE_TIMEOUT: Duration = Duration::from_secs(130);

/// Waits between failed attempts, as client-go's reflector.
const BACKOFF: RetryPolicy = RetryPolicy {
    attempts_max: u32::MAX,
    delay_min: Duration::from_millis(800),
    delay_max: Duration::from_secs(30),
};

/// How often a missing kind is looked for.
const MISSING_POLL: Duration = Duration::from_secs(5);

/// The server may refuse to resume for reasons that do not pass, such as a version it has never reached after a
/// restore. After this many refusals in a row the cache starts over.
const REFUSALS_MAX: u32 = 4;

/// A watch that ends sooner than this is not a sign of health.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// Fills a cache. Made by [`super::CacheBuilder::build`].
pub struct Reflector<V> {
    client: kube::Client,
    source: Source,
    decode: Decoder<V>,
    options: Options,
    shared: Arc<Shared<V>>,
    /// The version up to which the cache is complete; `None` before the first list and when it must be redone.
    position: Option<u64>,
    failures: u32,
    refusals: u32,
    missing_since: Option<Instant>,
    listed_at: Instant,
    reason: &'static str,
}

/// What is on its way through this process arrives within this time.
const STILL: Duration = Duration::from_millis(2);

/// What a read brings at once; else nothing, and some time has passed in which more may have come.
async fn gathered<T>(read: impl Future<Output = T>, time: Duration) -> Option<T> {
    let read = tokio::time::timeout(STILL, read).await.ok();
    if read.is_none() {
        tokio::time::sleep(time).await;
    }
    read
}

/// How a list or a watch ended.
enum End {
    /// The watch can go on from its position at once.
    Resume,
    /// The position is of no use any more.
    Relist(&'static str),
    /// The server turned us away.
    Refused(String),
    /// The server was not reached, or the connection broke.
    Failed(String),
    /// The cluster does not serve this kind.
    Missing,
}

impl<V: Send + Sync + 'static> Reflector<V> {
    pub(super) fn new(
        client: kube::Client,
        source: Source,
        decode: Decoder<V>,
        options: Options,
        shared: Arc<Shared<V>>,
    ) -> Reflector<V> {
        Reflector {
            client,
            source,
            decode,
            options,
            shared,
            position: None,
            failures: 0,
            refusals: 0,
            missing_since: None,
            listed_at: Instant::now(),
            reason: "start",
        }
    }

    /// Works until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let work = async {
            loop {
                self.step().await;
            }
        };
        tokio::select! {
            () = work => {}
            () = stop.cancelled() => {}
        }
    }

    async fn step(&mut self) {
        let end = match self.position {
            None => self.list().await,
            Some(position) => self.watch(position).await,
        };
        match end {
            End::Resume => {}
            End::Relist(reason) => self.relist(reason),
            End::Failed(error) => self.back_off(error).await,
            End::Refused(error) => {
                self.refusals += 1;
                if self.refusals >= REFUSALS_MAX {
                    self.relist("refused");
                }
                self.back_off(error).await;
            }
            End::Missing => self.wait_for_kind().await,
        }
    }

    fn relist(&mut self, reason: &'static str) {
        tracing::info!(kind = self.source.kind, reason, "watch cache lists again");
        self.position = None;
        self.reason = reason;
        self.refusals = 0;
    }

    async fn back_off(&mut self, error: String) {
        self.failures += 1;
        if self.failures == 1 {
            tracing::warn!(kind = self.source.kind, error, "watch cache lost the server, trying again");
        }
        self.shared.set_phase(Phase::Retrying { error });
        tokio::time::sleep(BACKOFF.delay(self.failures, random::unit())).await;
    }

    fn healthy(&mut self) {
        if self.failures > 0 {
            tracing::info!(
                kind = self.source.kind,
                failures = self.failures,
                "watch cache is connected again"
            );
        }
        (self.failures, self.refusals, self.missing_since) = (0, 0, None);
        self.shared.set_phase(Phase::Watching);
    }

    /// A missing kind may come at any time. What was cached of it stays for the grace, for an API server that has just
    /// started may not know its CRDs yet; then it is gone.
    async fn wait_for_kind(&mut self) {
        let now = Instant::now();
        let since = *self.missing_since.get_or_insert(now);
        if since == now {
            tracing::warn!(
                kind = self.source.kind,
                resource = self.source.resource,
                "kind is not served, waiting"
            );
        }
        self.position = None;
        self.shared.set_phase(Phase::Missing { since });
        let is_synced = *self.shared.synced.borrow();
        if now.duration_since(since) >= self.options.missing_grace && (self.options.is_optional || is_synced)
        {
            let parcel = self.shared.change(|store, deltas| {
                store.begin_list();
                *deltas = store.finish_list();
            });
            parcel.deliver().await;
            if !is_synced {
                tracing::warn!(
                    kind = self.source.kind,
                    resource = self.source.resource,
                    "going on without the kind"
                );
                self.shared.declare_synced().deliver().await;
                self.shared.synced.send_replace(true);
            }
        }
        tokio::time::sleep(MISSING_POLL).await;
    }

    /// Takes in a full list, page by page.
    async fn list(&mut self) -> End {
        let labels = RelistLabels { kind: self.source.kind.clone(), reason: self.reason };
        self.shared.metrics.cache_relists.get_or_create(&labels).inc();
        // No resourceVersion: the most recent state, never one that is behind what is already cached.
        let mut params = ListParams {
            label_selector: self.source.labels.clone(),
            field_selector: self.source.fields.clone(),
            limit: Some(self.options.page),
            ..ListParams::default()
        };
        self.shared.change(|store, _| store.begin_list()).deliver().await;
        loop {
            let text = match self.get(Request::new(&self.source.url_path).list(&params)).await {
                Ok(text) => text,
                // The rest of a paged list is forgotten after a few minutes: begin again, in one piece.
                Err(End::Relist(_)) if params.continue_token.is_some() => {
                    (params.limit, params.continue_token) = (None, None);
                    return self.list_in_one_piece(&params).await;
                }
                Err(End::Relist(_)) => {
                    return End::Failed("the server calls a fresh list expired".to_owned());
                }
                Err(end) => return end,
            };
            let page: Page<'_> = match serde_json::from_str(&text) {
                Ok(page) => page,
                Err(error) => return End::Failed(format!("the list is not readable: {error}")),
            };
            let items = page.items.as_deref().unwrap_or_default();
            self.take_objects(items.iter().map(|item| item.get())).await;
            match page.metadata.next.as_ref().filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next.clone()),
                None => return self.end_list(page.metadata).await,
            }
        }
    }

    /// Takes in a full list that comes in one piece, object by object.
    async fn list_in_one_piece(&mut self, params: &ListParams) -> End {
        self.shared.change(|store, _| store.begin_list()).deliver().await;
        let mut request = match Request::new(&self.source.url_path).list(params) {
            Ok(request) => request,
            Err(error) => return End::Failed(chain(&error)),
        };
        request.extensions_mut().insert(ReadInPieces);
        let mut stream = match self.client.request_stream(request).await {
            Ok(stream) => std::pin::pin!(stream),
            Err(error) => return end_of(&error),
        };
        let (mut splitter, mut objects) = (Splitter::default(), Vec::new());
        loop {
            let bytes = match tokio::time::timeout(IDLE_TIMEOUT, stream.fill_buf()).await {
                Ok(Ok([])) => break,
                Ok(Ok(bytes)) => bytes,
                Ok(Err(error)) => return End::Failed(chain(&error)),
                Err(_) => return End::Failed("the list stopped in the middle".to_owned()),
            };
            let length = bytes.len();
            splitter.feed(bytes, |object| objects.push(String::from_utf8_lossy(object).into_owned()));
            stream.consume_unpin(length);
            self.take_objects(objects.iter().map(String::as_str)).await;
            objects.clear();
        }
        let page: Page<'_> = match serde_json::from_slice(splitter.around()) {
            Ok(page) => page,
            Err(error) => return End::Failed(format!("the list is not readable: {error}")),
        };
        self.end_list(page.metadata).await
    }

    async fn end_list(&mut self, metadata: PageMeta) -> End {
        let version = metadata.resource_version.unwrap_or_default();
        match version.parse() {
            Ok(position) => self.finish_list(position).await,
            Err(_) => End::Failed(format!("the list's resourceVersion {version:?} is not a number")),
        }
    }

    async fn finish_list(&mut self, position: u64) -> End {
        self.shared.change(|store, deltas| *deltas = store.finish_list()).deliver().await;
        self.shared.declare_synced().deliver().await;
        self.shared.synced.send_replace(true);
        self.position = Some(position);
        self.listed_at = Instant::now();
        self.healthy();
        End::Resume
    }

    async fn take_objects(&self, objects: impl Iterator<Item = &str>) {
        // Decoded before the lock is taken: readers wait for the swap only.
        let decoded: Vec<_> =
            objects.map(|text| (self.decode)(text).map_err(|reason| (text, reason))).collect();
        let parcel = self.shared.change(|store, deltas| {
            for item in decoded {
                match item {
                    Ok(Decoded { key, version, value }) => {
                        self.shared.note_sound(&key);
                        deltas.extend(store.apply_listed(key, version, value).into_deltas());
                    }
                    Err((text, reason)) => {
                        if let Some(head) = self.note_malformed(text, reason) {
                            store.keep_listed(&head.namespace, &head.name, super::Uid::of(&head.uid));
                        }
                    }
                }
            }
        });
        parcel.deliver().await;
    }

    fn note_malformed(&self, text: &str, reason: String) -> Option<Head> {
        let head = Head::parse(text);
        let name = match &head {
            Some(head) if head.namespace.is_empty() => head.name.clone(),
            Some(head) => format!("{}/{}", head.namespace, head.name),
            None => "(unnamed)".to_owned(),
        };
        self.shared.note_malformed(name, reason);
        head
    }

    /// Follows the stream from a position until it ends.
    async fn watch(&mut self, position: u64) -> End {
        let start = Instant::now();
        let spread = u32::try_from(random::bits() % WATCH_SECONDS_SPREAD).unwrap_or(0);
        let params = WatchParams {
            label_selector: self.source.labels.clone(),
            field_selector: self.source.fields.clone(),
            timeout: Some(WATCH_SECONDS + spread),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = match Request::new(&self.source.url_path).watch(&params, &position.to_string()) {
            Ok(request) => request,
            Err(error) => return End::Failed(chain(&error)),
        };
        let stream = match self.client.request_stream(request).await {
            Ok(stream) => stream,
            Err(error) => return end_of(&error),
        };
        self.shared.set_phase(Phase::Watching);
        let end = self.follow(std::pin::pin!(stream)).await;
        // A stream that ends at once without having told anything is no progress.
        match end {
            End::Resume if self.position == Some(position) && start.elapsed() < SHORT_WATCH => {
                End::Failed("the watch ended at once".to_owned())
            }
            end => end,
        }
    }

    async fn follow(&mut self, mut stream: std::pin::Pin<&mut (impl AsyncBufRead + Send)>) -> End {
        let mut line = Vec::new();
        loop {
            line.clear();
            let until_relist = match self.options.relist_every {
                Some(period) => (self.listed_at + period).saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            let mut reading = std::pin::pin!(stream.read_until(b'\n', &mut line));
            let read = match (futures::poll!(reading.as_mut()), self.options.gather) {
                (Poll::Ready(read), _) => Some(read),
                (Poll::Pending, Some(time)) => gathered(reading.as_mut(), time).await,
                (Poll::Pending, None) => None,
            };
            let read = match read {
                Some(read) => read,
                None => tokio::select! {
                    read = reading => read,
                    () = tokio::time::sleep(IDLE_TIMEOUT) => return End::Resume,
                    () = tokio::time::sleep(until_relist) => return End::Relist("period"),
                },
            };
            match read {
                // A line without its end was cut off with the connection; the server will send it again.
                Ok(_) if line.last() != Some(&b'\n') => return End::Resume,
                Ok(_) => {}
                Err(error) => return End::Failed(chain(&error)),
            }
            let Ok(text) = std::str::from_utf8(&line) else {
                self.shared.note_malformed("(unnamed)".to_owned(), "the line is not UTF-8".to_owned());
                continue;
            };
            if let Some(end) = self.take_line(text).await {
                return end;
            }
        }
    }

    /// Takes in one line; says how the watch ends if it does.
    async fn take_line(&mut self, text: &str) -> Option<End> {
        let position = self.position.unwrap_or_default();
        let unseen = Line::applied_unseen(text).and_then(|object| (self.decode)(object).ok());
        if let Some(decoded) = unseen {
            let (outcome, version) = self.apply(decoded).await;
            return self.advance(position, outcome, version);
        }
        let (outcome, version) = match Line::parse(text) {
            Line::Applied(object) => match (self.decode)(object) {
                Ok(decoded) => self.apply(decoded).await,
                Err(reason) => {
                    let head = self.note_malformed(object, reason);
                    (true, head.and_then(|head| head.resource_version).unwrap_or(position))
                }
            },
            Line::Deleted(object) => match Head::parse(object).and_then(|head| Some((head.version()?, head)))
            {
                Some((version, head)) => {
                    let work =
                        |store: &mut super::Store<V>| store.remove(&head.namespace, &head.name, version);
                    (self.change(work).await, version.resource_version)
                }
                None => {
                    // Something is gone and we cannot tell what: only a list can.
                    self.shared
                        .note_malformed("(unnamed)".to_owned(), "deleted object has no identity".to_owned());
                    return Some(End::Relist("malformed"));
                }
            },
            // A bookmark behind our position means that the server's history was wound back.
            Line::Bookmark(version) if version < position => return Some(End::Relist("wound back")),
            Line::Bookmark(version) => (true, version),
            Line::Refused { code: 410, .. } => return Some(End::Relist("expired")),
            Line::Refused { message, .. } => return Some(End::Refused(message)),
            Line::Broken(reason) => {
                self.shared.note_malformed("(unnamed)".to_owned(), reason);
                return None;
            }
        };
        self.advance(position, outcome, version)
    }

    /// Takes in an object. Whether anything changed, and the object's version.
    async fn apply(&self, decoded: Decoded<V>) -> (bool, u64) {
        let Decoded { key, version, value } = decoded;
        self.shared.note_sound(&key);
        let at = version.resource_version;
        (self.change(|store| store.apply(key, version, value)).await, at)
    }

    fn advance(&mut self, position: u64, outcome: bool, version: u64) -> Option<End> {
        self.healthy();
        self.position = Some(position.max(version));
        // News that is older than what the stream has already told, and yet is news: the stream is out of order, so
        // resuming it later could skip something.
        (outcome && version < position).then_some(End::Relist("disorder"))
    }

    /// Changes the store and tells the readers. Whether anything changed.
    async fn change(&self, work: impl FnOnce(&mut super::Store<V>) -> Outcome<V>) -> bool {
        let parcel = self.shared.change_one(work);
        let is_news = !parcel.deltas.is_empty();
        if !is_news {
            let labels = KindLabels { kind: self.source.kind.clone() };
            self.shared.metrics.cache_stale.get_or_create(&labels).inc();
        }
        parcel.deliver().await;
        is_news
    }

    async fn get(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<String, End> {
        let request = request.map_err(|error| End::Failed(chain(&error)))?;
        self.client.request_text(request).await.map_err(|error| end_of(&error))
    }
}

fn end_of(error: &kube::Error) -> End {
    match error {
        kube::Error::Api(status) => match status.code {
            410 => End::Relist("expired"),
            404 => End::Missing,
            _ => End::Refused(status.message.clone()),
        },
        other => End::Failed(chain(other)),
    }
}
