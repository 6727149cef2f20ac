//! TaintTolerationArgs: ours alone, for kube-scheduler's plugin takes none.

use koord_api::gate::Gates;
use koord_engine::plugins::taint_toleration::Wording;
use koord_engine::profile::args::{Args, TaintTolerationArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json};
use crate::config::field::{Fault, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct TaintTolerationArgs {
    /// How refusals read: `Plain` as since kube-scheduler 1.35, `Named` as before, with the taint.
    wording: Option<String>,
}

impl RawArgs for TaintTolerationArgs {
    fn set_defaults(&mut self, _: &Gates) {
        self.wording.get_or_insert_with(|| "Plain".to_owned());
    }

    fn check(&self, at: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        let wording = self.wording.as_deref().unwrap_or_default();
        let known = match wording {
            "Plain" => Wording::Plain,
            "Named" => Wording::Named,
            _ => return vec![Fault::unsupported(below(at, "wording"), wording, &["Named", "Plain"])],
        };
        out.taint_toleration = Engine { wording: known };
        Vec::new()
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
