//! The strategies of slo-controller-config as they stand now, kept in step with the ConfigMap. Spec: manager 2, 24.3.
//!
//! `Source::follow` reads the ConfigMap's cache on every replica; [`tell`] records its faults as events, which only the leader
//! does. What a document means is decided in `koord_api::slo`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use koord_api::slo::{ConfigEvent, SloConfig};
use koord_kit::cache::{Cache, Delta};
use koord_kit::events::{EventType, Note};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::world::ConfigData;

/// Deltas of a single object.
const DELTAS_MAX: usize = 16;

/// The strategies as they stand, for everyone who asks. Cheap to clone.
#[derive(Clone)]
pub struct Strategies {
    now: watch::Receiver<Arc<Standing>>,
}

/// The strategies after one load.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    pub config: SloConfig,
    /// How often each key of the ConfigMap has changed its meaning.
    turns: BTreeMap<String, u64>,
    /// Which load this is; 0 is before the first.
    load: u64,
    /// What this load has to say to people.
    faults: Vec<ConfigEvent>,
    /// The ConfigMap, as far as it was ever seen.
    regarding: Option<ObjectReference>,
}

impl Strategies {
    /// What holds now. Nothing is loaded before the ConfigMap, or its absence, is known.
    pub fn now(&self) -> Arc<Standing> {
        self.now.borrow().clone()
    }

    /// Waits until what a key of `keys` means has changed since `seen`; `None` when there will be no more changes.
    pub async fn changed(&mut self, keys: &[&str], seen: &Standing) -> Option<Arc<Standing>> {
        let turn = |standing: &Standing, key: &str| standing.turns.get(key).copied().unwrap_or(0);
        let differs = |now: &Arc<Standing>| keys.iter().any(|key| turn(now, key) != turn(seen, key));
        self.now.wait_for(differs).await.ok().map(|now| now.clone())
    }
}

/// Where strategies are told.
pub struct Source {
    told: watch::Sender<Arc<Standing>>,
}

/// The strategies, still unknown, and where they will be told.
pub fn strategies() -> (Strategies, Source) {
    let (told, now) = watch::channel(Arc::default());
    (Strategies { now }, Source { told })
}

impl Source {
    /// Takes in the ConfigMap, or its absence.
    pub fn load(&self, map: Option<&ConfigData>) {
        let mut standing = Standing::clone(&self.told.borrow());
        let loaded = standing.config.load(map.map(|map| &map.data));
        standing.load += 1;
        for key in loaded.changed {
            *standing.turns.entry(key).or_default() += 1;
        }
        for fault in &loaded.events {
            tracing::warn!(reason = fault.reason, "slo-controller-config: {}", fault.message);
        }
        standing.faults = loaded.events;
        if let Some(map) = map {
            standing.regarding = Some(map.reference.clone());
        }
        self.told.send_replace(Arc::new(standing));
    }

    /// Loads whenever the ConfigMap changes, until `stop` is cancelled.
    pub async fn follow(self, cache: Cache<ConfigData>, stop: CancellationToken) {
        let mut deltas = cache.subscribe(DELTAS_MAX);
        let mut present: Option<Arc<ConfigData>> = None;
        let mut is_listed = false;
        loop {
            let delta = tokio::select! {
                delta = deltas.next() => delta,
                () = stop.cancelled() => None,
            };
            match delta {
                Some(Delta::Added(new)) => present = Some(new),
                Some(Delta::Updated { old, new }) => {
                    let is_same = old.data == new.data;
                    present = Some(new);
                    if is_same {
                        continue;
                    }
                }
                Some(Delta::Deleted(_)) => present = None,
                Some(Delta::Synced) if is_listed => continue,
                Some(Delta::Synced) => is_listed = true,
                None => return,
            }
            // Before the list is complete nobody knows whether there is a ConfigMap.
            if is_listed {
                self.load(present.as_deref());
            }
        }
    }
}

/// Which controller a fault is told by, and whether it is told at all: upstream keeps silent about a document that can be
/// read but says something impossible (M10), which is in the log.
fn teller(reason: &str) -> Option<Teller> {
    match reason {
        "ColocationCfgUnmarshalFailed" => Some(Teller::NodeMetric),
        "SLOCfgUnmarshalFailed" | "SLOCfgDeleted" => Some(Teller::NodeSlo),
        "CPUNormalizationCfgUnmarshalFailed" | "ResourceAmplificationCfgUnmarshalFailed" => {
            Some(Teller::NodeResource)
        }
        _ => None,
    }
}

/// The controllers that tell faults of the ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teller {
    NodeMetric,
    NodeSlo,
    NodeResource,
}

/// What a load has to say as events, and by whom.
pub fn notes(standing: &Standing) -> Vec<(Teller, Note)> {
    let Some(regarding) = &standing.regarding else { return Vec::new() };
    let note = |fault: &ConfigEvent| {
        let note = Note {
            regarding: regarding.clone(),
            related: None,
            kind: EventType::Warning,
            reason: fault.reason.to_owned(),
            action: String::new(),
            text: fault.message.clone(),
        };
        Some((teller(fault.reason)?, note))
    };
    standing.faults.iter().filter_map(note).collect()
}

/// Tells the faults of the present load and of every later one, until `stop` is cancelled.
pub async fn tell(strategies: Strategies, say: impl Fn(Teller, Note), stop: CancellationToken) {
    let mut now = strategies.now;
    let mut told = 0;
    loop {
        let standing = now.borrow_and_update().clone();
        if standing.load != told {
            told = standing.load;
            for (teller, note) in notes(&standing) {
                say(teller, note);
            }
        }
        tokio::select! {
            changed = now.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}
