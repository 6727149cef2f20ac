//! Keeps the certificates and both webhook configurations as they should be, on every replica. Spec: manager 14.2.
//!
//! [`Keeper::sync`] is one round; [`Keeper::run`] does rounds whenever something changed, and once a minute. All
//! decisions are in [`super::certificates`] and [`super::configuration`]; replicas agree by the Secret's version.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use koord_api::gate::Gates;
use koord_kit::cache::{CacheBuilder, Delta};
use koord_kit::log::chain;
use koord_kit::random;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::certificates::{Artifacts, CertificateError};
use super::configuration::{ConfigurationError, Wanted, keep};
use super::files;
use super::given::{Given, GivenError};
use super::paths::{Side, is_served};
use super::settings::{Settings, Writer};

/// Between two rounds when nothing happens.
const ROUND: Duration = Duration::from_secs(60);
/// Waits after failed rounds: the first, and the longest.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long an API server may take to hear of a new authority, before a certificate of it is served.
const PROPAGATION: Duration = Duration::from_secs(5);

/// What it takes to keep things.
pub struct Keeper {
    client: kube::Client,
    settings: Settings,
    gates: Gates,
    clock: fn() -> Timestamp,
    is_ready: watch::Sender<bool>,
    /// What is served of certificates that somebody else makes; empty with our own, which are served from files.
    given: watch::Sender<Given>,
    /// The authority that this replica goes by, and since when. Locked for a look.
    authority: Mutex<(String, Timestamp)>,
}

/// Why a round failed. The next one will do better, or tell the same.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error("cannot {doing} Secret {name}")]
    Secret { doing: &'static str, name: String, source: kube::Error },
    #[error("certificates cannot be made")]
    Certificates(#[source] CertificateError),
    #[error("the certificates given cannot be used")]
    Given(#[source] GivenError),
    #[error("cannot write certificates to {dir}")]
    Files { dir: String, source: io::Error },
    #[error("not found {kind} {name}")]
    NotFound { kind: &'static str, name: String, source: kube::Error },
    #[error(transparent)]
    Configuration(ConfigurationError),
    #[error("cannot update {kind} {name}")]
    Write { kind: &'static str, name: String, source: kube::Error },
}

impl KeepError {
    /// Whether another replica was faster, as happens when both have seen the same change.
    fn is_lost_race(&self) -> bool {
        match self {
            KeepError::Secret { source, .. } | KeepError::Write { source, .. } => {
                matches!(source, kube::Error::Api(status) if status.code == 409)
            }
            _ => false,
        }
    }
}

impl Keeper {
    pub fn new(client: kube::Client, settings: Settings, gates: Gates, clock: fn() -> Timestamp) -> Keeper {
        let (is_ready, authority) = (watch::Sender::new(false), Mutex::new((String::new(), clock())));
        let given = watch::Sender::new(Given::default());
        Keeper { client, settings, gates, clock, is_ready, given, authority }
    }

    /// The certificates to serve where somebody else makes them; empty before the first good round.
    pub fn given(&self) -> watch::Receiver<Given> {
        self.given.subscribe()
    }

    /// True from the first good round on.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.is_ready.subscribe()
    }

    /// One round. Nothing is written that is already as it should be.
    ///
    /// A new authority is told to the API server first, and used once it has heard of it: whoever connects in between
    /// finds the old certificate, which is still trusted. (Differs: upstream serves it at once.)
    pub async fn sync(&self) -> Result<(), KeepError> {
        let artifacts = match self.settings.writer {
            Writer::Secret => self.shared().await?,
            Writer::Files => self.own()?,
            Writer::Given => return self.pass_on().await,
        };
        self.configure(Some(&artifacts.ca_cert)).await?;
        let served = files::read(&self.settings.cert_dir);
        if !served.cert.is_empty() && served.ca_cert != artifacts.ca_cert {
            tokio::time::sleep(PROPAGATION).await;
        }
        let dir = &self.settings.cert_dir;
        let written = files::write(dir, &artifacts, (self.clock)())
            .map_err(|source| KeepError::Files { dir: dir.display().to_string(), source })?;
        if written {
            tracing::info!(dir = %dir.display(), "certificates of the webhook server written");
        }
        self.is_ready.send_replace(true);
        Ok(())
    }

    /// A round with certificates that somebody else makes. What was good last stays in use while new ones are not.
    async fn pass_on(&self) -> Result<(), KeepError> {
        let Settings { cert_dir, .. } = &self.settings;
        let given = Given::read(cert_dir, &self.settings.server_name(), (self.clock)());
        let given = given.map_err(KeepError::Given)?;
        self.configure(given.ca_cert.as_deref()).await?;
        let served = self.given.borrow().clone();
        if !served.cert.is_empty() && served.ca_cert != given.ca_cert {
            tokio::time::sleep(PROPAGATION).await;
        }
        if served != given {
            tracing::info!(dir = %cert_dir.display(), "certificates of the webhook server taken over");
            self.given.send_replace(given);
        }
        self.is_ready.send_replace(true);
        Ok(())
    }

    /// Certificates of this replica alone.
    fn own(&self) -> Result<Artifacts, KeepError> {
        let (name, now) = (self.settings.server_name(), (self.clock)());
        let stored = files::read(&self.settings.cert_dir);
        match stored.check(&name, now) {
            Ok(()) => Ok(stored),
            Err(_) => stored.renew(&name, now, serial()).map_err(KeepError::Certificates),
        }
    }

    /// Certificates of all replicas, from the Secret; made and stored when they are missing or no good.
    async fn shared(&self) -> Result<Artifacts, KeepError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.settings.namespace);
        let name = &self.settings.secret_name;
        let failed = |doing| {
            let name = name.clone();
            move |source| KeepError::Secret { doing, name, source }
        };
        let (server_name, now) = (self.settings.server_name(), (self.clock)());
        let Some(secret) = secrets.get_opt(name).await.map_err(failed("read"))? else {
            let made = Artifacts::default();
            let made = made.renew(&server_name, now, serial()).map_err(KeepError::Certificates)?;
            return match secrets.create(&PostParams::default(), &self.secret(None, &made)).await {
                Ok(_) => Ok(made),
                // Another replica was faster; the certificates are its.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let theirs = secrets.get(name).await.map_err(failed("read"))?;
                    Ok(artifacts_of(&theirs))
                }
                Err(source) => Err(failed("create")(source)),
            };
        };
        let stored = artifacts_of(&secret);
        let Err(fault) = stored.check(&server_name, now) else { return Ok(stored) };
        tracing::info!(secret = name, reason = %fault, "certificates of the webhook server are renewed");
        let renewed = stored.renew(&server_name, now, serial()).map_err(KeepError::Certificates)?;
        let next = self.secret(Some(secret), &renewed);
        secrets.replace(name, &PostParams::default(), &next).await.map_err(failed("update"))?;
        Ok(renewed)
    }

    /// The Secret with these certificates; of an old one all else stays, its version too.
    fn secret(&self, old: Option<Secret>, artifacts: &Artifacts) -> Secret {
        let mut secret = old.unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(self.settings.secret_name.clone()),
                namespace: Some(self.settings.namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Secret::default()
        });
        let data: &mut BTreeMap<String, ByteString> = secret.data.get_or_insert_default();
        for (name, text) in artifacts.files() {
            data.insert(name.to_owned(), ByteString(text.as_bytes().to_vec()));
        }
        secret
    }

    /// Since when this replica goes by an authority: from now on when it is another one than before.
    fn since(&self, ca_cert: &str) -> Timestamp {
        let mut authority = self.authority.lock().unwrap_or_else(PoisonError::into_inner);
        if authority.0 != ca_cert {
            *authority = (ca_cert.to_owned(), (self.clock)());
        }
        authority.1
    }

    /// Both configurations are read before either is written.
    async fn configure(&self, ca_cert: Option<&str>) -> Result<(), KeepError> {
        let served = |path: &str| is_served(path, &self.gates);
        let wanted = Wanted {
            settings: &self.settings,
            is_served: &served,
            ca_cert,
            is_staggered: self.settings.writer == Writer::Given,
            since: self.since(ca_cert.unwrap_or_default()),
            now: (self.clock)(),
        };
        let mut changed = Vec::new();
        for side in Side::ALL {
            let found = self.configuration(side, None).await.map_err(|source| KeepError::NotFound {
                kind: side.kind(),
                name: self.settings.configuration_name(side).to_owned(),
                source,
            })?;
            changed.push((side, keep(side, &found, &wanted).map_err(KeepError::Configuration)?));
        }
        for (side, next) in changed.into_iter().filter_map(|(side, next)| Some((side, next?))) {
            let name = self.settings.configuration_name(side);
            self.configuration(side, Some(&next)).await.map_err(|source| KeepError::Write {
                kind: side.kind(),
                name: name.to_owned(),
                source,
            })?;
            tracing::info!(kind = side.kind(), name, "webhook configuration updated");
        }
        Ok(())
    }

    /// Reads a configuration, or writes it, as a tree.
    async fn configuration(&self, side: Side, next: Option<&Value>) -> Result<Value, kube::Error> {
        let collection = match side {
            Side::Mutating => MutatingWebhookConfiguration::url_path(&(), None),
            Side::Validating => ValidatingWebhookConfiguration::url_path(&(), None),
        };
        let uri = format!("{collection}/{}", self.settings.configuration_name(side));
        let (method, body) = match next {
            None => (http::Method::GET, Vec::new()),
            Some(next) => (http::Method::PUT, next.to_string().into_bytes()),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }

    /// Rounds until `stop` is cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let mut news = self.watch(&stop);
        let mut wait = RETRY_MIN;
        loop {
            let next = match self.sync().await {
                Ok(()) => {
                    wait = RETRY_MIN;
                    ROUND
                }
                Err(error) => {
                    if error.is_lost_race() {
                        tracing::info!(
                            "another replica puts the webhook certificates and configurations in order"
                        );
                    } else {
                        tracing::warn!(
                            error = chain(&error),
                            "webhook certificates and configurations are not in order"
                        );
                    }
                    let next = wait.mul_f64(0.5 + random::unit());
                    wait = (wait * 2).min(RETRY_MAX);
                    next
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(next) => {}
                Some(()) = news.recv() => while news.try_recv().is_ok() {},
            }
        }
    }

    /// Tells when the Secret or a configuration changed.
    fn watch(&self, stop: &CancellationToken) -> mpsc::Receiver<()> {
        // One is enough: what it says is "look again".
        let (sender, news) = mpsc::channel(1);
        if self.settings.writer == Writer::Secret {
            let builder = self.named::<Secret>(&self.settings.secret_name);
            follow(builder.namespace::<Secret>(&self.settings.namespace), sender.clone(), stop);
        }
        follow(
            self.named::<MutatingWebhookConfiguration>(&self.settings.mutating_name),
            sender.clone(),
            stop,
        );
        follow(self.named::<ValidatingWebhookConfiguration>(&self.settings.validating_name), sender, stop);
        news
    }

    fn named<K>(&self, name: &str) -> CacheBuilder<()>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + 'static,
    {
        CacheBuilder::of(self.client.clone(), |_, _: K| ()).fields(&format!("metadata.name={name}"))
    }
}

fn follow(builder: CacheBuilder<()>, news: mpsc::Sender<()>, stop: &CancellationToken) {
    let (cache, worker) = builder.build();
    let mut deltas = cache.subscribe(16);
    tokio::spawn(worker.run(stop.clone()));
    tokio::spawn(async move {
        // Ends with the cache's worker.
        while let Some(delta) = deltas.next().await {
            if !matches!(delta, Delta::Synced) {
                let _ = news.try_send(());
            }
        }
    });
}

fn artifacts_of(secret: &Secret) -> Artifacts {
    Artifacts::read(|name| Some(secret.data.as_ref()?.get(name)?.0.clone()))
}

/// A number that no other certificate has.
fn serial() -> u64 {
    random::bits()
}

#[cfg(test)]
mod tests;
