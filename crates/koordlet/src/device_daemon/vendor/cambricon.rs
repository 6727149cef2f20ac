//! MLUs of Cambricon, by `cnmon`.

use koord_api::keys::resource::{GPU_CORE, GPU_MEMORY};

use super::{Answer, AskError, Card, Machine, each, last_word};
use crate::devices::xpu::{Status, Topology, Xpu};

pub(super) fn cards(machine: &Machine<'_>) -> Result<Vec<Card>, AskError> {
    let list = machine.ask(&["cnmon", "-l"])?;
    let count = list.lines_with("UUID").count();
    if count == 0 {
        return Ok(Vec::new());
    }
    let model = list.text.split_whitespace().find(|word| word.contains("MLU"));
    let model = model.ok_or_else(|| list.lacks("a model with MLU in its name"))?;
    let memory = memory(&machine.ask(&["cnmon", "info"])?)?;
    Ok(each(0..count, |minor| {
        let own = machine.ask(&["cnmon", "info", "-c", &minor.to_string()])?;
        Ok(Xpu {
            vendor: "cambricon".to_owned(),
            model: model.to_owned(),
            uuid: uuid(&own)?.to_owned(),
            minor: minor.to_string(),
            resources: [(GPU_MEMORY.to_owned(), memory.clone()), (GPU_CORE.to_owned(), "100".to_owned())]
                .into(),
            topology: Some(topology(machine, &own)?),
            status: Some(health(&own)),
        })
    }))
}

/// `Total : 49152 MiB` below `Physical Memory Usage`.
fn memory(info: &Answer) -> Result<String, AskError> {
    let lacks = || info.lacks("a Total below Physical Memory Usage");
    let below = info.lines().skip_while(|line| !line.contains("Physical Memory Usage"));
    let total = below.take(2).find(|line| line.contains("Total")).ok_or_else(lacks)?;
    let mut words = total.split_whitespace().rev().skip(1);
    words.next().filter(|word| word.parse::<u64>().is_ok()).map(|mib| format!("{mib}Mi")).ok_or_else(lacks)
}

fn uuid(own: &Answer) -> Result<&str, AskError> {
    let line = own.lines_with("UUID").next();
    line.and_then(|line| line.split_whitespace().nth(2)).ok_or_else(|| own.lacks("a UUID"))
}

/// The tool tells the NUMA node itself, and the bus id in four parts.
fn topology(machine: &Machine<'_>, own: &Answer) -> Result<Topology, AskError> {
    let device =
        devices_said(own).find(|said| is_device_number(said)).ok_or_else(|| own.lacks("a Device number"))?;
    let bus_id =
        format!("{}:{}:{device}.{}", own.value("Domain ID")?, own.value("Bus num")?, own.value("Function")?);
    let node_id = own.value("NUMA node id")?.to_owned();
    Ok(Topology { node_id, ..machine.topology(&bus_id) })
}

/// What stands behind `Device :`, which is both a part of the bus id and the state.
fn devices_said(own: &Answer) -> impl Iterator<Item = &str> {
    own.lines().filter_map(|line| line.strip_prefix("Device")?.trim_start().strip_prefix(':').map(str::trim))
}

/// Differs: upstream takes hexadecimal numbers such as `0a` for a state, and the card for broken.
fn is_device_number(said: &str) -> bool {
    (1..=2).contains(&said.len()) && said.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn health(own: &Answer) -> Status {
    let state = devices_said(own).find(|said| !is_device_number(said)).and_then(last_word);
    match state {
        Some("Good") => Status { healthy: true, ..Status::default() },
        state => Status {
            healthy: false,
            error_code: String::new(),
            error_message: format!("Device is unhealthy, status: {}", state.unwrap_or("unknown")),
        },
    }
}
