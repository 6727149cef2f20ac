//! HTTP extenders: other processes that have a say in scheduling. Spec: scheduler-core 3.5.
//!
//! The engine's thread waits for their answers, for an attempt cannot go on without them. `http` sends, `wire` knows
//! the bodies, `objects` keeps what they are sent of pods and nodes; nothing is kept when no extender is configured.

use std::sync::Arc;

use koord_engine::engine::command::Subject;
use koord_engine::extender::{Candidate, Extender, Filtered, Kept, Terms};
use tokio::runtime::Handle;

use crate::config::Extender as Config;

mod http;
mod objects;
mod wire;

pub use self::http::{ExtenderError, Http, terms};
pub use self::objects::Objects;

/// All configured extenders.
pub struct Extension {
    /// In the order they are configured, for the bindings that they make.
    pub https: Vec<Arc<Http>>,
    /// What watches must keep for them; none when there are none.
    pub objects: Option<Arc<Objects>>,
}

impl Extension {
    pub async fn new(configs: &[Config]) -> Result<Extension, ExtenderError> {
        let mut https = Vec::new();
        for config in configs {
            https.push(Arc::new(Http::new(config).await?));
        }
        let mut whole = configs.iter().filter(|config| !config.node_cache_capable);
        let objects = (!configs.is_empty()).then(|| {
            let with_nodes = whole.clone().next().is_some();
            let with_victims = whole.any(|config| config.preempt_verb.is_some());
            Arc::new(Objects::new(with_nodes, with_victims))
        });
        Ok(Extension { https, objects })
    }

    /// What the engine asks. Call them from no thread of the runtime.
    pub fn judges(&self, runtime: &Handle) -> Vec<Box<dyn Extender>> {
        let judge = |(http, objects): (&Arc<Http>, &Arc<Objects>)| {
            let judge = Judge { http: http.clone(), objects: objects.clone(), runtime: runtime.clone() };
            Box::new(judge) as Box<dyn Extender>
        };
        self.https.iter().zip(self.objects.iter().cycle()).map(judge).collect()
    }
}

/// One extender as the engine sees it.
struct Judge {
    http: Arc<Http>,
    objects: Arc<Objects>,
    runtime: Handle,
}

impl Judge {
    fn pod(&self, pod: &Subject) -> Result<Arc<str>, String> {
        self.objects.pod(&pod.uid).ok_or_else(|| format!("pod {} is gone", pod.key))
    }

    fn about_nodes(&self, pod: &Subject, nodes: &[Box<str>]) -> Result<String, String> {
        let pod = self.pod(pod)?;
        Ok(match self.http.is_node_cache_capable() {
            true => wire::about_names(&pod, nodes),
            false => wire::about_nodes(&pod, &self.objects.nodes(nodes)),
        })
    }

    /// Says of a failure what the engine cannot say.
    fn told<T>(&self, pod: &Subject, result: Result<T, String>) -> Result<T, String> {
        result.inspect_err(|error| {
            let ignorable = self.http.terms().is_ignorable;
            tracing::warn!(pod = %pod.key, extender = self.http.url(), ignorable, "an extender failed: {error}");
        })
    }

    fn ask_filter(&self, pod: &Subject, nodes: &[Box<str>]) -> Result<Filtered, String> {
        let Some(verb) = self.http.verbs().filter.as_deref() else {
            return Ok(Filtered { passed: nodes.to_vec(), ..Filtered::default() });
        };
        let body = self.about_nodes(pod, nodes)?;
        let answer = self.runtime.block_on(self.http.post(verb, body))?;
        wire::filtered(&answer, self.http.is_node_cache_capable(), nodes, self.http.url())
    }

    fn ask_scores(&self, pod: &Subject, nodes: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String> {
        let Some((verb, _)) = &self.http.verbs().prioritize else { return Ok(Vec::new()) };
        let body = self.about_nodes(pod, nodes)?;
        wire::scores(&self.runtime.block_on(self.http.post(verb, body))?)
    }

    fn ask_preempt(&self, pod: &Subject, candidates: &[Candidate]) -> Result<Vec<Kept>, String> {
        let Some(verb) = self.http.verbs().preempt.as_deref() else {
            return Ok(candidates.iter().map(wire::as_offered).collect());
        };
        let object = self.pod(pod)?;
        let body = match self.http.is_node_cache_capable() {
            true => wire::about_victim_uids(&object, candidates),
            false => wire::about_victims(&object, candidates, |uid| self.objects.pod(uid)),
        };
        wire::kept(&self.runtime.block_on(self.http.post(verb, body))?, candidates)
    }
}

impl Extender for Judge {
    fn terms(&self) -> &Terms {
        self.http.terms()
    }

    fn filter(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Filtered, String> {
        self.told(pod, self.ask_filter(pod, nodes))
    }

    fn prioritize(&mut self, pod: &Subject, nodes: &[Box<str>]) -> Result<Vec<(Box<str>, i64)>, String> {
        self.told(pod, self.ask_scores(pod, nodes))
    }

    fn preempt(&mut self, pod: &Subject, candidates: &[Candidate]) -> Result<Vec<Kept>, String> {
        self.told(pod, self.ask_preempt(pod, candidates))
    }
}

#[cfg(test)]
pub(crate) mod tests;
