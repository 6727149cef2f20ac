//! NPUs of Huawei, by `npu-smi`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use koord_api::keys::resource::{GPU_MEMORY, HUAWEI_NPU_CORE, HUAWEI_NPU_CPU, HUAWEI_NPU_DVPP};

use super::{Answer, AskError, Card, Machine, each, last_word};
use crate::devices::xpu::{Status, Xpu};
use crate::programs::Fault;

/// The one model that tells neither its memory nor its cores.
const SMALL: &str = "Ascend-310P3";
const SMALL_MEMORY_MIB: u64 = 21_527;
const SMALL_CORES: u64 = 8;

pub(super) fn cards(machine: &Machine<'_>) -> Result<Vec<Card>, AskError> {
    let cards = ids(&machine.ask(&["npu-smi", "info", "-l"])?);
    let Some(first) = cards.first() else { return Ok(Vec::new()) };
    let model = model(&machine.ask(&["npu-smi", "info", "-m"])?)?;
    let resources = [
        (GPU_MEMORY, format!("{}Mi", memory_mib(machine, &model, first)?)),
        (HUAWEI_NPU_CPU, cpus(machine, &model, first)?.to_string()),
        (HUAWEI_NPU_CORE, cores(machine, &model, first)?.to_string()),
        (HUAWEI_NPU_DVPP, "100".to_owned()),
    ];
    let minors = minors(machine)?;
    // The tool does not tell whose file is whose, so they are paired in order. With one missing, as when a card is broken, all
    // later cards would get the file of another.
    if minors.len() != cards.len() {
        let dir = machine.dev.display().to_string();
        return Err(AskError::Files { cards: cards.len(), files: minors.len(), dir });
    }
    let cards: BTreeMap<u32, String> = minors.into_iter().zip(cards).collect();
    Ok(each(cards.keys(), |minor| {
        let card = &cards[minor];
        let board = machine.ask(&["npu-smi", "info", "-t", "board", "-i", card])?;
        Ok(Xpu {
            vendor: "huawei".to_owned(),
            model: model.clone(),
            uuid: format!("npu-{card}-{minor}"),
            minor: minor.to_string(),
            resources: resources.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            topology: Some(machine.topology(board.value("PCIe Bus Info")?)),
            status: Some(health(card, &board)),
        })
    }))
}

fn ids(list: &Answer) -> Vec<String> {
    list.lines_with("NPU ID").filter_map(last_word).map(str::to_owned).collect()
}

/// `Ascend 910B3` at the end of the second line, as `Ascend-910B3`.
fn model(mapping: &Answer) -> Result<String, AskError> {
    let lacks = || mapping.lacks("the name of a chip in its second line");
    let words: Vec<&str> = mapping.text.lines().nth(1).ok_or_else(lacks)?.split_whitespace().collect();
    match words[..] {
        [.., family, model] => Ok(format!("{family}-{model}")),
        _ => Err(lacks()),
    }
}

/// Tools of some age take the words without `info` only, others with it only.
fn memory_mib(machine: &Machine<'_>, model: &str, card: &str) -> Result<u64, AskError> {
    let is_unknown = |error: &AskError| matches!(error, AskError::Tool(Fault::Refused(_, said)) if said.contains("Command or option is not found"));
    let asked = match machine.ask(&["npu-smi", "-t", "memory", "-i", card]) {
        Err(error) if is_unknown(&error) && model == SMALL => return Ok(SMALL_MEMORY_MIB),
        Err(error) if is_unknown(&error) => machine.ask(&["npu-smi", "info", "-t", "memory", "-i", card]),
        asked => asked,
    }?;
    asked.sum(&["DDR Capacity", "HBM Capacity"], "a number behind DDR Capacity and HBM Capacity")
}

fn cores(machine: &Machine<'_>, model: &str, card: &str) -> Result<u64, AskError> {
    if model == SMALL {
        return Ok(SMALL_CORES);
    }
    let common = machine.ask(&["npu-smi", "info", "-t", "common", "-i", card])?;
    common.sum(&["Aicore Count"], "a number behind Aicore Count")
}

fn cpus(machine: &Machine<'_>, model: &str, card: &str) -> Result<u64, AskError> {
    match model {
        "Ascend-910B" => Ok(0),
        "Ascend-910B2" => Ok(6),
        "Ascend-910B3" | "Ascend-910B4" => Ok(7),
        _ => {
            let config = machine.ask(&["npu-smi", "info", "-t", "cpu-num-cfg", "-i", card])?;
            config.sum(&["AI"], "a number of AI CPUs")
        }
    }
}

/// Numbers of the device files, in order. Differs: upstream sorts them as texts, so that 10 comes before 2.
fn minors(machine: &Machine<'_>) -> Result<BTreeSet<u32>, AskError> {
    let dir = machine.dev;
    let entries =
        fs::read_dir(dir).map_err(|source| AskError::Dev { dir: dir.display().to_string(), source })?;
    let number = |name: &str| name.strip_prefix("davinci")?.parse::<u32>().ok();
    Ok(entries.flatten().filter_map(|entry| number(entry.file_name().to_str()?)).collect())
}

fn health(card: &str, board: &Answer) -> Status {
    let faults = board.find("Chip Fault").and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    match faults {
        0 => Status { healthy: true, ..Status::default() },
        _ => Status {
            healthy: false,
            error_code: "chip error".to_owned(),
            error_message: format!("NPU index {card} has {faults} chip faults"),
        },
    }
}
