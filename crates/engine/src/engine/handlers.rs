//! Who has a say when a pod could not be placed: handlers before and after the default one. Spec: scheduler-core 9.12.

use std::sync::Arc;

use crate::cluster::Row;
use crate::framework::{Nominating, PluginName};
use crate::pod::Pod;

use super::Command;

/// A failed attempt, as handlers see it.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    pub pod: &'a Arc<Pod>,
    pub message: &'a str,
    /// A verdict of plugins, as opposed to a failure of ours.
    pub is_rejected: bool,
}

/// Looks at a failed attempt. Some means that nobody else needs to: before the default handler it is then not run, after
/// it the handlers that follow are not asked. The commands are carried out.
pub trait FailureHandler: Send + Sync {
    fn handle(&self, failed: &Failed<'_>) -> Option<Vec<Command>>;
}

/// Handlers in the order they were registered.
#[derive(Default)]
pub(super) struct Handlers {
    pub(super) before: Vec<Arc<dyn FailureHandler>>,
    pub(super) after: Vec<Arc<dyn FailureHandler>>,
}

impl Handlers {
    /// Asks handlers of a list until one takes the failure over.
    pub(super) fn ask(list: &[Arc<dyn FailureHandler>], failed: &Failed<'_>) -> Option<Vec<Command>> {
        list.iter().find_map(|handler| handler.handle(failed))
    }
}

/// Plugins that speak for a whole job say themselves what becomes of a pod's promise.
const JOB_PREEMPTED: PluginName = "JobPreemptionSuccessPlugin";
const JOB_REJECTED: PluginName = "JobRejectPlugin";

/// The nomination after a plugin refused the pod on a node that it had.
// Differs: upstream clears the nomination when JobRejectPlugin rejects a pod that waits, by mistaking who rejected it.
pub(super) fn nominating_after(plugin: PluginName, row: Row) -> Nominating {
    match plugin {
        JOB_PREEMPTED => Nominating::Node(row),
        JOB_REJECTED => Nominating::Keep,
        _ => Nominating::Clear,
    }
}
