//! Switches of the whole machine.

use std::fs;

use koord_linux::system::SystemFile;

use super::{Ground, Hands, Setting, Strategy};
use crate::decide::system_config;
use crate::decide::wish::Batch;

/// The strategy; it remembers nothing.
pub(super) struct SystemConfig;

impl Strategy for SystemConfig {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let (Some(slo), Some(node)) = (ground.snapshot.slo.as_deref(), ground.snapshot.node.as_deref())
        else {
            return;
        };
        let has_features = !slo.system.sched_features.is_empty();
        let features =
            has_features.then(|| fs::read_to_string(SystemFile::SchedFeatures.path(&setting.root)).ok());
        let plan = system_config::plan(&slo.system, &node.node, features.flatten().as_deref());
        for refused in &plan.refused {
            tracing::debug!(%refused, "a value of the system strategy is not taken");
        }
        hands.apply(ground, &Batch::Each(plan.wishes));
    }
}
