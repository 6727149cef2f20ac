//! Memory QoS on the node.

use super::{Ground, Hands, Setting, Strategy};
use crate::decide::memory_qos;

/// The strategy; it remembers nothing.
pub(super) struct MemoryQos;

impl Strategy for MemoryQos {
    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let (Some(slo), Some(node)) = (ground.snapshot.slo.as_deref(), ground.snapshot.node.as_deref())
        else {
            return;
        };
        let plan = memory_qos::plan(&slo.qos, &node.node, ground.pods, setting.page_bytes);
        hands.apply(ground, &plan.batch);
    }
}
