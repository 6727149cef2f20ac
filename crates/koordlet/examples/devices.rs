//! Shows the devices of this machine as koordlet sees them.
//!
//! `cargo run -p koordlet --example devices -- 5` measures for five seconds and prints the Device object;
//! `… -- errors 5` waits so long for critical errors of GPUs.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use koord_api::crd::device::Device;
use koord_linux::nvml::{Library, Sighting};
use koord_linux::root::Root;
use koordlet::devices::{Options, Reading, report, start};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.last().and_then(|word| word.parse().ok()).unwrap_or(5);
    let end = Instant::now() + Duration::from_secs(seconds);
    if words.first().is_some_and(|word| word == "errors") { watch(end) } else { measure(end) }
}

fn measure(end: Instant) -> Result<(), Box<dyn Error>> {
    let options = Options { is_accelerators_on: true, is_rdma_on: true, ..Options::default() };
    let devices = start(Root::host("/"), options)?;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
        show(&devices.reading());
    }
    let inventory = devices.inventory().ok_or("nothing was seen in that time")?;
    println!("driver {:?}", inventory.driver_version);
    let mut device = Device::default();
    report(&inventory, false).apply(&mut device, Timestamp::now());
    println!("{}", serde_json::to_string_pretty(&device)?);
    Ok(())
}

fn show(reading: &Reading) {
    for usage in reading.of_node() {
        println!("GPU {}: {} %, {} bytes", usage.gpu.minor, usage.core, usage.memory_bytes);
        for process in &usage.gpu.usage.processes {
            println!("  {process:?}");
        }
    }
}

fn watch(end: Instant) -> Result<(), Box<dyn Error>> {
    let library = Library::load()?;
    let bus_ids = library.bus_ids(&Root::host("/"));
    let (watch, unwatched) = library.watch(&bus_ids)?;
    println!("watching {bus_ids:?}, but not {unwatched:?}");
    for bus_id in &bus_ids {
        let gpu = library.gpu(bus_id)?;
        println!("{gpu:?} needs recovery: {:?}", library.needs_recovery(&gpu));
    }
    while Instant::now() < end {
        match watch.wait(Duration::from_secs(1)) {
            Sighting::Quiet => {}
            seen => println!("{seen:?}"),
        }
    }
    Ok(())
}
