//! The collectors and the store alone, on a node of plain files: what `cargo xtask bench koordlet` measures.
//!
//! `observe tree DIR v1|v2 CONTAINERS` makes the node and moves its counters once a second until its input ends.
//! `observe collect DIR v1|v2 [PASSES]` collects once a second, after filling the store with an hour of samples; with a
//! number of passes it runs them as fast as it can and ends. `observe read DIR` opens and reads the same files.

#![allow(clippy::print_stdout)]

mod tree;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use koord_linux::cgroup::{Cgroups, Driver, Version};
use koord_linux::root::Root;
use koordlet::collect::{Collectors, MemoryPolicy, Moment, Settings};
use koordlet::decide::snapshot::Pod;
use koordlet::store::{Batch, Kind, Limits, Store};

const SECOND: Duration = Duration::from_secs(1);
/// Seconds of samples that a node has in the steady state.
const HOUR: i64 = 3600;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["tree", dir, version, containers] => {
            tree_role(Path::new(dir), version_of(version)?, containers.parse()?)?
        }
        ["collect", dir, version] => collect_role(Path::new(dir), version_of(version)?)?,
        ["collect", dir, version, passes] => {
            passes_role(Path::new(dir), version_of(version)?, passes.parse()?)?
        }
        ["read", dir] => read_role(Path::new(dir))?,
        _ => return Err("observe tree|collect|read DIR …".into()),
    }
    Ok(())
}

fn version_of(word: &str) -> Result<Version, String> {
    match word {
        "v1" => Ok(Version::V1),
        "v2" => Ok(Version::V2),
        _ => Err(format!("{word} is neither v1 nor v2")),
    }
}

fn tree_role(dir: &Path, version: Version, containers: usize) -> io::Result<()> {
    let mut tree = tree::Tree::make(dir, version, containers)?;
    fs::write(dir.join("pods.json"), serde_json::to_vec(&tree.pods)?)?;
    let files: Vec<String> = tree.files.iter().map(|path| path.display().to_string()).collect();
    fs::write(dir.join("files"), files.join("\n"))?;
    println!("{} pods, {} files", tree.pods.len(), files.len());
    let end = std::thread::spawn(|| io::stdin().read_to_end(&mut Vec::new()));
    while !end.is_finished() {
        tree.turn()?;
        std::thread::sleep(SECOND);
    }
    Ok(())
}

fn read_role(dir: &Path) -> io::Result<()> {
    let files: Vec<PathBuf> = fs::read_to_string(dir.join("files"))?.lines().map(PathBuf::from).collect();
    let mut buffer = vec![0; 1 << 16];
    loop {
        for path in &files {
            if File::open(path)?.read(&mut buffer)? == 0 {
                return Err(io::Error::other(format!("{} is empty", path.display())));
            }
        }
        std::thread::sleep(SECOND);
    }
}

fn collectors(dir: &Path, version: Version) -> io::Result<Collectors> {
    let root = Root::host(dir);
    let cgroups = Arc::new(Cgroups::new(&root, version, Driver::Systemd));
    let mut collectors = Collectors::new(&root, cgroups, Settings::default());
    let objects: Vec<k8s_openapi::api::core::v1::Pod> =
        serde_json::from_slice(&fs::read(dir.join("pods.json"))?)?;
    let pods: Vec<Pod> = objects.iter().map(Pod::read).collect();
    collectors.set_pods(&pods);
    collectors.set_applications(Some(&[]), MemoryPolicy::default());
    Ok(collectors)
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { unix_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), instant: Instant::now() }
}

fn collect_role(dir: &Path, version: Version) -> io::Result<()> {
    koord_linux::handle::raise_open_files()?;
    let mut collectors = collectors(dir, version)?;
    let mut store = filled(&mut collectors);
    println!("{:?}", store.stats());
    loop {
        let moment = now();
        collectors.pass(moment, &mut store);
        store.tend(moment.unix_ms);
        std::thread::sleep(SECOND);
    }
}

/// Passes at a clock of their own.
fn passes_role(dir: &Path, version: Version, passes: u32) -> io::Result<()> {
    let mut collectors = collectors(dir, version)?;
    let mut store = Store::new(&Limits::default());
    let start = now();
    for pass in 0..passes {
        let moment = Moment {
            unix_ms: start.unix_ms + i64::from(pass) * 1000,
            instant: start.instant + SECOND * pass,
        };
        collectors.pass(moment, &mut store);
        store.tend(moment.unix_ms);
    }
    println!("{passes} passes: {} opens, {:?}", collectors.opens(), store.stats());
    Ok(())
}

/// A store with an hour of uneven samples in every series that the collectors write.
fn filled(collectors: &mut Collectors) -> Store {
    let end = now();
    let start_ms = end.unix_ms - HOUR * 1000;
    let mut names = Store::new(&Limits::default());
    for pass in 0..4_u32 {
        let moment = Moment {
            unix_ms: start_ms - 60_000 + i64::from(pass) * 1000,
            instant: end.instant + SECOND * pass,
        };
        collectors.pass(moment, &mut names);
    }
    let mut store = Store::new(&Limits::default());
    let series: Vec<_> = Kind::ALL
        .iter()
        .flat_map(|kind| names.series(*kind).map(|(key, _)| key.clone()).collect::<Vec<_>>())
        .map(|key| (key.kind(), store.find(key)))
        .collect();
    let mut noise = 1_u32;
    let mut batch = Batch::default();
    for second in 0..HOUR {
        let at_ms = start_ms + second * 1000;
        for (kind, id) in &series {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            batch.add(*id, at_ms, likely(*kind, noise >> 12));
        }
        if store.commit(at_ms, &mut batch).is_err() {
            break;
        }
    }
    store
}

/// A number such as this kind has: cores around 0.05, memory around 500 MiB that moves by pages, seldom throttling.
fn likely(kind: Kind, noise: u32) -> f64 {
    let noise = f64::from(noise);
    if kind.as_str().contains("memory") {
        536_870_912.0 + (noise / 4096.0).trunc() * 4096.0
    } else if kind.as_str().contains("throttled") {
        if noise < 50_000.0 { 0.25 } else { 0.0 }
    } else if kind == Kind::NodeBe {
        noise.trunc()
    } else {
        (50_000.0 + (noise / 100.0).trunc()) / 1e6
    }
}
