//! VolumeBindingArgs.

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::{Args, VolumeBindingArgs as Engine};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fit::{RawPoint, check_shape};
use super::{RawArgs, json, listed};
use crate::config::field::{Fault, Verbatim, below};

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VolumeBindingArgs {
    bind_timeout_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Vec<RawPoint>>,
}

const SCORING: &str = "StorageCapacityScoring";

impl RawArgs for VolumeBindingArgs {
    fn set_defaults(&mut self, gates: &Gates) {
        self.bind_timeout_seconds.get_or_insert(600);
        if gates.is_on(SCORING) && listed(&self.shape).is_empty() {
            self.shape = Some(vec![RawPoint::new(0, 10), RawPoint::new(100, 0)]);
        }
    }

    fn check(&self, at: &str, gates: &Gates, out: &mut Args) -> Vec<Fault> {
        let seconds = self.bind_timeout_seconds.unwrap_or_default();
        let mut faults = Vec::new();
        if seconds < 0 {
            let path = below(at, "bindTimeoutSeconds");
            let detail = "invalid BindTimeoutSeconds, should not be a negative value";
            faults.push(Fault::invalid(path, seconds, detail));
        }
        let path = below(at, "shape");
        let mut shape = None;
        if gates.is_on(SCORING) {
            match check_shape(&path, listed(&self.shape)) {
                Ok(checked) => shape = Some(checked),
                Err(wrong) => faults.extend(wrong),
            }
        } else if let Some(points) = &self.shape {
            let detail =
                "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring";
            let points: Vec<String> = points.iter().map(RawPoint::shown).collect();
            let points = Verbatim(format!("[{}]", points.join(",")));
            faults.push(Fault::invalid(path, points, detail));
        }
        out.volume_binding = Engine { bind_timeout: GoDuration::from_seconds(seconds), shape };
        faults
    }

    fn to_json(&self) -> Value {
        json(self)
    }
}
