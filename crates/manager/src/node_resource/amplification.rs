//! Resource amplification: how many times its real amounts a node shows. Spec: manager 9.1.
//!
//! Only the ratios are decided here; `webhook::node` multiplies where allocatable is written.

use koord_api::annotation::ratio::{AmplificationRatios, CpuNormalizationRatio, Ratio};
use koord_api::annotation::{Annotation, AnnotationError, read};
use koord_api::keys::resource::CPU;

use super::{Input, Item, NodeMemory, NodeResource, NodeView, Plugin, PluginError};

const KEY: &str = AmplificationRatios::KEY;

pub struct ResourceAmplification;

impl Plugin for ResourceAmplification {
    fn name(&self) -> &'static str {
        "ResourceAmplification"
    }

    fn calculate(&self, input: &Input<'_>, _: &mut NodeMemory) -> Result<Vec<Item>, PluginError> {
        let ratios = ratios(input).map_err(|error| PluginError(error.to_string()))?;
        let mut item = Item { name: self.name(), ..Item::default() };
        if !ratios.0.is_empty() {
            item.annotations.insert(KEY.to_owned(), ratios.text());
        }
        Ok(vec![item])
    }

    /// Without an item the annotation goes.
    fn reset(&self) -> Vec<Item> {
        Vec::new()
    }

    fn prepare(&self, node: &mut NodeView, resource: &NodeResource) -> Result<(), PluginError> {
        match resource.annotations.get(KEY) {
            Some(text) => node.annotations.insert(KEY.to_owned(), text.clone()),
            None => node.annotations.remove(KEY),
        };
        Ok(())
    }

    fn needs_meta(&self, old: &NodeView, new: &NodeView) -> Option<bool> {
        Some(old.annotations.get(KEY) != new.annotations.get(KEY))
    }
}

/// Why a node is not amplified.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
enum NoRatios {
    #[error("the config of resource amplification is not available")]
    NoConfig,
    #[error(transparent)]
    Normalization(#[from] AnnotationError),
    #[error("amplification ratio is invalid: {reason}")]
    Invalid { reason: String },
}

/// The ratios of a node. The CPU's takes in the normalization ratio that stands on the node, so that one computed in
/// this round counts from the next on.
fn ratios(input: &Input<'_>) -> Result<AmplificationRatios, NoRatios> {
    let strategy = input.config.amplification_strategy(input.node.facts()).ok_or(NoRatios::NoConfig)?;
    let mut ratios = AmplificationRatios::default();
    if strategy.enable == Some(true) {
        for (name, ratio) in &strategy.resource_amplification_ratio {
            ratios.0.insert(name.clone(), finite(name, *ratio)?);
        }
    }
    let configured = ratios.0.get(CPU).map(|ratio| ratio.value()).filter(|ratio| *ratio > 0.0);
    let normalization = read::<CpuNormalizationRatio>(&input.node.annotations)?;
    let cpu = configured.unwrap_or(1.0) * normalization.map_or(1.0, |ratio| ratio.0.value());
    if cpu > 1.0 {
        ratios.0.insert(CPU.to_owned(), finite(CPU, cpu)?);
    }
    ratios.validate().map_err(|reason| NoRatios::Invalid { reason })?;
    Ok(ratios)
}

fn finite(name: &str, ratio: f64) -> Result<Ratio, NoRatios> {
    let reason = || format!("ratio with resource type {name} and value {ratio} is invalid");
    Ratio::new(ratio).ok_or_else(|| NoRatios::Invalid { reason: reason() })
}

#[cfg(test)]
mod tests;
