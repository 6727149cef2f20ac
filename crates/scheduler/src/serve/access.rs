//! Who may ask on the secure port: the cluster decides, by its authorities for clients and for proxies that ask for
//! others, by TokenReview and SubjectAccessReview.
//!
//! Answers are remembered for the times that the flags give. Differs: without a kubeconfig of its own, the scheduler's
//! own connection asks, where kube-scheduler would let nobody in.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use koord_kit::http::{Answer, CertificateUser, Guard, PeerCertificates, json, text};
use koord_kit::log::chain;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::trust::Trust;
use crate::flags::{Authentication, Authorization};

/// Remembered answers; more are asked anew.
const REMEMBERED_MAX: usize = 4096;

/// Judges requests.
pub struct Access {
    token_client: kube::Client,
    access_client: kube::Client,
    trust: Arc<Trust>,
    authentication: Authentication,
    authorization: Authorization,
    users: Remembered<String, Option<User>>,
    verdicts: Remembered<(User, String, String), bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    name: String,
    pub(super) uid: String,
    groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    fn anonymous() -> User {
        User::of("system:anonymous".to_owned(), vec!["system:unauthenticated".to_owned()])
    }

    pub(super) fn authenticated(name: String, mut groups: Vec<String>) -> User {
        if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        User::of(name, groups)
    }

    fn of(name: String, groups: Vec<String>) -> User {
        User { name, uid: String::new(), groups, extra: BTreeMap::new() }
    }
}

/// What a request says about who sent it.
struct Shown {
    certificates: Option<PeerCertificates>,
    headers: HeaderMap,
    token: Option<String>,
}

impl Access {
    pub fn new(
        token_client: kube::Client,
        access_client: kube::Client,
        trust: Arc<Trust>,
        authentication: Authentication,
        authorization: Authorization,
    ) -> Access {
        Access {
            token_client,
            access_client,
            trust,
            authentication,
            authorization,
            users: Remembered::default(),
            verdicts: Remembered::default(),
        }
    }

    /// As a server's guard.
    pub fn guard(self) -> Guard {
        let access = Arc::new(self);
        Arc::new(move |parts: &Parts| {
            let access = access.clone();
            let path = parts.uri.path().to_owned();
            let verb = parts.method.as_str().to_ascii_lowercase();
            let shown = Shown {
                certificates: parts.extensions.get().cloned(),
                headers: parts.headers.clone(),
                token: bearer(parts),
            };
            Box::pin(async move { access.judge(&path, &verb, shown).await })
        })
    }

    /// None lets the request pass.
    async fn judge(&self, path: &str, verb: &str, shown: Shown) -> Option<Answer> {
        if self.is_open(path) {
            return None;
        }
        let user = match self.identify(shown).await {
            Ok(Some(user)) => user,
            Ok(None) => return Some(text(StatusCode::UNAUTHORIZED, "Unauthorized\n")),
            Err(error) => return Some(unanswered(&error)),
        };
        match self.is_allowed(&user, path, verb).await {
            Ok(true) => None,
            Ok(false) => {
                let message = format!("forbidden: User {:?} cannot {verb} path {path:?}", user.name);
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": message, "reason": "Forbidden", "details": {}, "code": 403});
                Some(json(StatusCode::FORBIDDEN, &status))
            }
            Err(error) => Some(unanswered(&error)),
        }
    }

    /// Who asks: whom a proxy names, else who its certificate says, else its token, else nobody in particular. None when
    /// what is shown is not good.
    async fn identify(&self, shown: Shown) -> Result<Option<User>, kube::Error> {
        let mut is_good = true;
        if let Some(certificates) = &shown.certificates {
            let user = |CertificateUser { name, groups }| User::authenticated(name, groups);
            let own = || Ok(self.trust.user(certificates)?.map(user));
            let named = self.trust.asks_for(certificates, &shown.headers);
            for found in [named, own()] {
                match found {
                    Ok(Some(user)) => return Ok(Some(user)),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::debug!(error, "a client's certificate is not good");
                        is_good = false;
                    }
                }
            }
        }
        match shown.token {
            Some(token) => self.user(&token).await,
            None => Ok(is_good.then(User::anonymous)),
        }
    }

    /// Whether anyone may read it. A pattern that ends in `*` is all below.
    fn is_open(&self, path: &str) -> bool {
        self.authorization.always_allow_paths.iter().any(|open| match open.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == open,
        })
    }

    async fn user(&self, token: &str) -> Result<Option<User>, kube::Error> {
        let ttl = self.authentication.token_cache_ttl;
        if let Some(known) = self.users.get(&token.to_owned(), |_| ttl) {
            return Ok(known);
        }
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.token_client.clone()).create(&PostParams::default(), &review).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true)).map(|user| User {
            uid: user.uid.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
            ..User::authenticated(user.username.unwrap_or_default(), user.groups.unwrap_or_default())
        });
        self.users.put(token.to_owned(), user.clone());
        Ok(user)
    }

    async fn is_allowed(&self, user: &User, path: &str, verb: &str) -> Result<bool, kube::Error> {
        let key = (user.clone(), path.to_owned(), verb.to_owned());
        let Authorization { authorized_cache_ttl, unauthorized_cache_ttl, .. } = self.authorization;
        let ttl = |allowed: &bool| if *allowed { authorized_cache_ttl } else { unauthorized_cache_ttl };
        if let Some(known) = self.verdicts.get(&key, ttl) {
            return Ok(known);
        }
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = Api::all(self.access_client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = answer.status.is_some_and(|status| status.allowed);
        self.verdicts.put(key, allowed);
        Ok(allowed)
    }
}

fn unanswered(error: &kube::Error) -> Answer {
    tracing::warn!(error = chain(error), "a request could not be judged");
    text(StatusCode::INTERNAL_SERVER_ERROR, "the cluster could not be asked who may do this\n")
}

fn bearer(parts: &Parts) -> Option<String> {
    let value = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

/// Answers and when they were given.
struct Remembered<K, V> {
    /// Locked for one lookup.
    answers: Mutex<HashMap<K, (Instant, V)>>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Remembered<K, V> {
        Remembered { answers: Mutex::default() }
    }
}

impl<K: Eq + Hash, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K, ttl: impl Fn(&V) -> Duration) -> Option<V> {
        let answers = self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (given, value) = answers.get(key)?;
        (given.elapsed() < ttl(value)).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut answers = self.answers.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if answers.len() >= REMEMBERED_MAX {
            answers.clear();
        }
        answers.insert(key, (Instant::now(), value));
    }
}
