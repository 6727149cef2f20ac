//! How strong a node's CPUs count, and how much more of a node is shown than there is:
//! `cpu-normalization-config` and `resource-amplification-config`. Spec: api 7.8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::document::Shape;
use super::key;
use super::strategy::Strategy;

/// How much stronger the CPUs of each model are than the cluster's baseline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CpuNormalizationStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// For models that the table lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ratio: Option<f64>,
    /// By CPU model, as the kernel spells it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ratio_model: BTreeMap<String, ModelRatio>,
}

/// The ratios of one CPU model, by what is switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ModelRatio {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper_thread_enabled_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turbo_enabled_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper_thread_turbo_enabled_ratio: Option<f64>,
}

/// Why a node has no ratio.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RatioError {
    #[error("cpu model {model:?} has no ratio with hyper-threading {hyper_thread}, turbo {turbo}")]
    Unknown { model: String, hyper_thread: bool, turbo: bool },
    #[error("ratio {ratio} of cpu model {model:?} is out of range, must be from 1 to 5")]
    OutOfRange { model: String, ratio: f64 },
}

impl CpuNormalizationStrategy {
    /// The ratio of a CPU, 1 when normalization is off.
    pub fn ratio(&self, model: &str, hyper_thread: bool, turbo: bool) -> Result<f64, RatioError> {
        if self.enable == Some(true) { self.model_ratio(model, hyper_thread, turbo) } else { Ok(1.0) }
    }

    /// The ratio of a CPU, whether or not normalization is on.
    pub fn model_ratio(&self, model: &str, hyper_thread: bool, turbo: bool) -> Result<f64, RatioError> {
        let ratios = self.ratio_model.get(model).copied().unwrap_or_default();
        let ratio = match (hyper_thread, turbo) {
            (true, true) => ratios.hyper_thread_turbo_enabled_ratio,
            (true, false) => ratios.hyper_thread_enabled_ratio,
            (false, true) => ratios.turbo_enabled_ratio,
            (false, false) => ratios.base_ratio,
        };
        let model = model.to_owned();
        match ratio.or(self.default_ratio) {
            Some(ratio) if (1.0..=5.0).contains(&ratio) => Ok(ratio),
            Some(ratio) => Err(RatioError::OutOfRange { model, ratio }),
            None => Err(RatioError::Unknown { model, hyper_thread, turbo }),
        }
    }
}

impl Strategy for CpuNormalizationStrategy {
    type Partial = Self;
    const KEY: &'static str = key::CPU_NORMALIZATION;
    const SHAPE: Shape = Shape::Flat;
    const UNREADABLE: (&'static str, &'static str) =
        ("CPUNormalizationCfgUnmarshalFailed", "CPUNormalizationCfg");

    fn built_in() -> Self {
        CpuNormalizationStrategy { enable: Some(false), ..CpuNormalizationStrategy::default() }
    }
}

/// How many times the real amount a node shows of each resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceAmplificationStrategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// By resource name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_amplification_ratio: BTreeMap<String, f64>,
}

impl Strategy for ResourceAmplificationStrategy {
    type Partial = Self;
    const KEY: &'static str = key::RESOURCE_AMPLIFICATION;
    const SHAPE: Shape = Shape::Flat;
    const UNREADABLE: (&'static str, &'static str) =
        ("ResourceAmplificationCfgUnmarshalFailed", "amplificationCfg");

    fn built_in() -> Self {
        ResourceAmplificationStrategy { enable: Some(false), ..ResourceAmplificationStrategy::default() }
    }
}
