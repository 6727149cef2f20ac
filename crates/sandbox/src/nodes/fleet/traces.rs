//! Usage traces from ConfigMaps, read once for all pods that use them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::nodes::profile::{Measure, Trace};
use crate::server::Api;

/// Traces kept at once; a cluster has few.
const TRACES_MAX: usize = 256;

/// A trace, and the revision of the ConfigMap it was read from.
type Known = (u64, Result<Arc<Trace>, String>);

#[derive(Default)]
pub(super) struct Traces {
    /// By measure, namespace, ConfigMap and key.
    known: HashMap<(bool, String, String, String), Known>,
}

impl Traces {
    /// The trace, or what is wrong with it.
    pub(super) fn get(
        &mut self,
        api: &Api,
        measure: Measure,
        (namespace, config_map, key): (&str, &str, &str),
    ) -> Result<Arc<Trace>, String> {
        let kind = api.kind("", "configmaps").map_err(|_| "ConfigMaps to be served".to_owned())?;
        let missing = || format!("an existing ConfigMap, but {namespace}/{config_map} is not found");
        let stored = api.get(&kind, namespace, config_map).map_err(|_| missing())?;
        let place = (measure == Measure::Cpu, namespace.to_owned(), config_map.to_owned(), key.to_owned());
        if let Some((revision, trace)) = self.known.get(&place)
            && *revision == stored.revision()
        {
            return trace.clone();
        }
        let object = stored.value();
        let trace = match object["data"][key].as_str() {
            None => Err(format!("a key of ConfigMap {namespace}/{config_map}, but it has no {key:?}")),
            Some(text) => Trace::parse(measure, text)
                .map(Arc::new)
                .map_err(|why| format!("a trace, but ConfigMap {namespace}/{config_map} {key}: {why}")),
        };
        if self.known.len() >= TRACES_MAX {
            self.known.clear();
        }
        self.known.insert(place, (stored.revision(), trace.clone()));
        trace
    }
}
