//! ScarceResourceAvoidanceArgs.

use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, ScarceResourceAvoidanceArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{RawArgs, json, listed};
use crate::config::field::Fault;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ScarceResourceAvoidanceArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Vec<String>>,
}

impl RawArgs for ScarceResourceAvoidanceArgs {
    fn set_defaults(&mut self, _: &Gates) {}

    fn check(&self, _: &str, _: &Gates, out: &mut Args) -> Vec<Fault> {
        out.scarce_resource_avoidance = Engine { resources: listed(&self.resources).to_vec() };
        Vec::new()
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
