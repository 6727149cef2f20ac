//! Switches of the whole machine.

use std::fs;

use koord_linux::system::SystemFile;

use super::{Ground, Hands, Setting, Strategy};
use crate::decide::system_config::{self, Refused};
use crate::decide::wish::Batch;

/// The strategy and what it refused last, so that it is told once.
#[derive(Default)]
pub(super) struct SystemConfig {
    refused: Vec<Refused>,
}

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
        if self.refused != plan.refused {
            for refused in &plan.refused {
                tracing::warn!(%refused, "a value of the system strategy is not taken");
            }
            self.refused = plan.refused;
        }
        hands.apply(ground, &Batch::Each(plan.wishes));
    }
}
