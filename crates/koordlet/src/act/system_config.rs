//! Switches of the whole machine.

use std::fs;

use koord_api::crd::node_slo::SystemStrategy;
use koord_linux::executor::Target;
use koord_linux::system::SystemFile;

use super::{Ground, Hands, Setting, Strategy};
use crate::apply::Change;
use crate::decide::system_config::{self, Refused};
use crate::decide::wish::{Batch, Cause};

/// The strategy and what it remembers.
#[derive(Default)]
pub(super) struct SystemConfig {
    /// What was last asked for.
    strategy: Option<SystemStrategy>,
    /// What was refused last, so that it is told once.
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
        if self.strategy.as_ref() != Some(&slo.system) {
            let is_dropped = |change: &Change<'_>| {
                change.reason == Cause::SystemConfig.reason() && !is_asked_for(&slo.system, change)
            };
            hands.applier.give_back(ground.now, is_dropped);
            self.strategy = Some(slo.system.clone());
        }
        hands.apply(ground, &Batch::Each(plan.wishes));
    }
}

/// Whether the strategy still says something about what was changed.
fn is_asked_for(strategy: &SystemStrategy, change: &Change<'_>) -> bool {
    let Target::System(file) = change.target else { return false };
    match file {
        SystemFile::MinFreeKbytes => strategy.min_free_kbytes_factor.is_some(),
        SystemFile::WatermarkScaleFactor => strategy.watermark_scale_factor.is_some(),
        SystemFile::ReapBackground => strategy.memcg_reap_back_ground.is_some(),
        SystemFile::PagecacheLimitEnabled => strategy.page_cache_limit_enabled.is_some(),
        SystemFile::SchedGroupIdentityEnabled => strategy.sched_group_identity_enabled.is_some(),
        SystemFile::SchedIdleSaverWmark => strategy.sched_idle_saver_wmark.is_some(),
        SystemFile::SchedFeatures => {
            change.feature.is_some_and(|feature| strategy.sched_features.contains_key(feature))
        }
        SystemFile::SchedCore | SystemFile::OomScoreAdj(_) => false,
    }
}
