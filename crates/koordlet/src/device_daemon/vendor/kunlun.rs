//! XPUs of Kunlun, by `xpu_smi -m`: a line of numbered words for each.

use koord_api::keys::resource::{GPU_CORE, GPU_MEMORY};

use super::{Answer, AskError, Card, Machine, each};
use crate::devices::xpu::{Status, Xpu};

/// Places of the words in a line.
const BUS_ID: usize = 0;
const MEMORY_MIB: usize = 18;
const MODEL: usize = 21;

pub(super) fn cards(machine: &Machine<'_>) -> Result<Vec<Card>, AskError> {
    let all = machine.ask(&["xpu_smi", "-m"])?;
    let count = all.lines().filter(|line| !line.is_empty()).count();
    if count == 0 {
        return Ok(Vec::new());
    }
    let model = word(&all, MODEL, "a model as word 22 of its first line")?;
    let memory = word(&all, MEMORY_MIB, "its memory as word 19 of its first line")?;
    Ok(each(0..count, |minor| {
        let own = machine.ask(&["xpu_smi", "-m", "-d", &format!("/dev/xpu{minor}")])?;
        let bus_id = word(&own, BUS_ID, "a bus id as its first word")?;
        Ok(Xpu {
            vendor: "kunlun".to_owned(),
            model: model.to_owned(),
            uuid: format!("xpu-{minor}"),
            minor: minor.to_string(),
            resources: [
                (GPU_MEMORY.to_owned(), format!("{memory}Mi")),
                (GPU_CORE.to_owned(), "100".to_owned()),
            ]
            .into(),
            topology: Some(machine.topology(bus_id)),
            // The tool tells nothing of health.
            status: Some(Status { healthy: true, ..Status::default() }),
        })
    }))
}

fn word<'a>(answer: &'a Answer, at: usize, wanted: &'static str) -> Result<&'a str, AskError> {
    let line = answer.lines().next().unwrap_or_default();
    line.split_whitespace().nth(at).ok_or_else(|| answer.lacks(wanted))
}
