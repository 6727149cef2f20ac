//! GPUs of MetaX, by `mx-smi`.

use koord_api::keys::resource::{GPU_CORE, GPU_MEMORY};
use koord_kit::log::chain;

use super::{Answer, AskError, Card, Machine, each, last_word};
use crate::devices::xpu::{Status, Xpu};
use crate::programs::Fault;

/// Counters of errors that a card does not recover from.
const BROKEN: &[&str] = &["SRAM Uncorrectable", "DRAM Uncorrectable", "Double Bit ECC"];

pub(super) fn cards(machine: &Machine<'_>) -> Result<Vec<Card>, AskError> {
    let hardware = machine.ask(&["mx-smi", "--show-hwinfo"])?;
    let count = named(&hardware, "model name").count();
    if count == 0 {
        return Ok(Vec::new());
    }
    let fourth = |name, wanted| {
        let word = named(&hardware, name).next().and_then(|line| line.split_whitespace().nth(3));
        word.ok_or_else(|| hardware.lacks(wanted))
    };
    let model = fourth("model name", "a Model Name")?;
    let memory = fourth("memory capacity", "a Memory Capacity")?.replace("GB", "Gi");
    let list = machine.ask(&["mx-smi", "--list"])?;
    Ok(each(0..count, |minor| {
        let index = minor.to_string();
        let own = machine.ask(&["mx-smi", "--show-hwinfo", "-i", &index])?;
        let bus_id = physical(&own).find_map(|line| line.split_whitespace().nth(2));
        let bus_id = bus_id.ok_or_else(|| own.lacks("a bus id behind GPU#"))?;
        Ok(Xpu {
            vendor: "metax".to_owned(),
            model: model.to_owned(),
            uuid: uuid(&list, &index)?,
            minor: index.clone(),
            resources: [(GPU_MEMORY.to_owned(), memory.clone()), (GPU_CORE.to_owned(), "100".to_owned())]
                .into(),
            topology: Some(machine.topology(bus_id)),
            status: Some(health(machine, &index)?),
        })
    }))
}

/// Lines with a name, whatever its case.
fn named<'a>(answer: &'a Answer, name: &'a str) -> impl Iterator<Item = &'a str> {
    answer.lines().filter(move |line| line.to_ascii_lowercase().contains(name))
}

/// Lines about whole cards; parts of cards are `SGPU#`.
fn physical(answer: &Answer) -> impl Iterator<Item = &str> {
    answer.lines().filter(|line| line.contains("GPU#") && !line.contains("SGPU"))
}

/// The sixth word of the card's line, in brackets. Differs: upstream takes the line of card 10 for one of card 1.
fn uuid(list: &Answer, index: &str) -> Result<String, AskError> {
    let is_own = |line: &&str| {
        line.split("GPU#").skip(1).any(|rest| {
            rest.strip_prefix(index).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let word = physical(list).find(is_own).and_then(|line| line.split_whitespace().nth(5));
    let word = word.ok_or_else(|| list.lacks("a UUID as the sixth word of the line of a card"))?;
    Ok(word.trim_matches(['(', ')']).to_owned())
}

/// Differs: upstream looks at the last counter only.
fn health(machine: &Machine<'_>, index: &str) -> Result<Status, AskError> {
    let counters = match machine.ask(&["mx-smi", "--count-ecc", "-i", index]) {
        Ok(counters) => Some(counters),
        Err(hung @ AskError::Tool(Fault::Hung(_))) => return Err(hung),
        // Not every card counts its errors: one whose counters cannot be read is taken for a good one.
        Err(error) => {
            machine.remark(format!("errors of MetaX card {index} are not known: {}", chain(&error)));
            None
        }
    };
    let errors: u64 = counters.map_or(0, |counters| {
        let lines = counters.lines().filter(|line| BROKEN.iter().any(|name| line.contains(name)));
        lines.filter_map(last_word).filter_map(|word| word.parse::<u64>().ok()).sum()
    });
    Ok(match errors {
        0 => Status { healthy: true, ..Status::default() },
        _ => Status {
            healthy: false,
            error_code: "ECC error".to_owned(),
            error_message: format!(
                "MX index {index} has {errors} SRAM/DRAM Uncorrectable or Double Bit ECC errors"
            ),
        },
    })
}
