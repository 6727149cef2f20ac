//! SchedulingHintArgs.

use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, SchedulingHintArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SchedulingHintArgs {
    max_hint_nodes: Option<i32>,
}

impl RawArgs for SchedulingHintArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.max_hint_nodes.get_or_insert(100);
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let nodes = self.max_hint_nodes.unwrap_or_default();
        match usize::try_from(nodes) {
            Ok(max_hint_nodes) if max_hint_nodes > 0 => {
                out.scheduling_hint = Engine { max_hint_nodes };
                Vec::new()
            }
            _ => vec![Fault::invalid(below(at, "maxHintNodes"), nodes, "must be a positive value")],
        }
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
