//! koord-device-daemon: asks the tools of accelerators' vendors what is on the machine, and describes it in a file that
//! koordlet reads (`devices/xpu.rs`). Spec: koordlet-observe 6.5.
//!
//! A program of its own, since a privileged one that runs others' tools should do nothing else. `vendor` says what there is,
//! `options` what is wanted; here is the loop: look, describe, sleep.

mod options;
mod vendor;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use koord_kit::log::chain;
use koord_kit::shutdown::Shutdown;
use koord_linux::pci::{self, Identity};
use tokio::signal::unix::{SignalKind, signal};

use crate::devices::xpu::{self, Xpu};
use crate::programs::{Fault, Host, Stuck};
use crate::run::{complain, say};
use options::{Options, OptionsError, Request};
use vendor::{AskError, Card, Machine, VENDORS, Vendor};

/// How long a tool may take: some ask each card in turn.
const TOOL_TIME_LIMIT: Duration = Duration::from_secs(60);
/// The sooner next look after one that failed: a driver may still be loading. After more failures it comes less often, for
/// a machine may have other parts of a vendor, and no tool.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Plays koord-device-daemon with the words after its name.
pub fn main(words: Vec<OsString>, version: &str) -> ExitCode {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let read = || options::parse(words.clone(), |name| std::env::var(name).ok());
    match read() {
        Ok(Request::Help(text)) => say(&text),
        Ok(Request::Version) => say(&format!("koord-device-daemon {version}")),
        Ok(Request::Run(options)) => match run(*options, read) {
            Ok(code) => code,
            Err(error) => complain(&chain(&error), ExitCode::FAILURE),
        },
        Err(error) => {
            let help = "`koord-device-daemon --help` lists all flags";
            complain(&format!("{}\n{help}", chain(&error)), ExitCode::FAILURE)
        }
    }
}

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("cannot set up logging")]
    Log(#[source] koord_kit::log::LogError),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
}

fn run(options: Options, read: impl Fn() -> Result<Request, OptionsError>) -> Result<ExitCode, MainError> {
    koord_kit::log::init(&options.log).map_err(MainError::Log)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(MainError::Runtime)?;
    let ended = runtime.block_on(serve(options, read));
    // A tool that hangs is not waited for.
    runtime.shutdown_background();
    ended
}

/// Looks, describes and sleeps until it is asked to stop. SIGHUP has flags, variables and the file read again.
async fn serve(
    mut options: Options,
    read: impl Fn() -> Result<Request, OptionsError>,
) -> Result<ExitCode, MainError> {
    let asked = Shutdown::on_signals().map_err(MainError::Runtime)?.token();
    let mut reload = signal(SignalKind::hangup()).map_err(MainError::Runtime)?;
    let mut heard = Heard { known: remembered(&options), ..Heard::default() };
    let mut failures = 0;
    warn(&options);
    loop {
        let look = {
            let (options, mut heard) = (options.clone(), heard.clone());
            tokio::task::spawn_blocking(move || {
                let is_whole = look(&options, &mut heard);
                (heard, is_whole)
            })
        };
        let looked = tokio::select! {
            looked = look => looked,
            () = asked.cancelled() => return leave(&options),
        };
        let is_whole;
        // A look that panicked has told why; what was known before stays.
        (heard, is_whole) = looked.unwrap_or((heard, false));
        describe(&options, &heard.known)?;
        if options.is_once {
            return Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        failures = if is_whole { 0 } else { failures + 1 };
        tokio::select! {
            () = tokio::time::sleep(pause(options.interval, failures)) => {}
            () = asked.cancelled() => return leave(&options),
            _ = reload.recv() => {
                tracing::info!("the configuration is read again");
                let next = renewed(&options, read());
                if next.output != options.output {
                    leave(&options)?;
                }
                options = next;
                warn(&options);
            }
        }
    }
}

fn warn(options: &Options) {
    options.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
}

/// How long to rest after so many looks in a row that failed.
fn pause(interval: Duration, failures: u32) -> Duration {
    match failures {
        0 => interval,
        some => RETRY_AFTER.saturating_mul(2_u32.saturating_pow(some - 1)).min(interval),
    }
}

/// The options after they were read again. Faulty ones change nothing (Differs: upstream ends, and takes everything back).
fn renewed(options: &Options, read: Result<Request, OptionsError>) -> Options {
    match read {
        Ok(Request::Run(next)) => *next,
        Ok(_) => options.clone(),
        Err(error) => {
            tracing::error!(error = chain(&error), "the new configuration cannot be used, the old one stays");
            options.clone()
        }
    }
}

/// What was last heard of each vendor.
type Known = BTreeMap<&'static str, Vec<Xpu>>;

/// What the tools said so far.
#[derive(Clone, Default)]
struct Heard {
    known: Known,
    told: Told,
    /// Those of the last look.
    remarks: BTreeSet<String>,
    stuck: Stuck,
}

/// What was last told in the log, by what it is about, so that it is told again only when it changes.
#[derive(Clone, Default)]
struct Told(BTreeMap<String, String>);

impl Told {
    /// Whether this was not the last word about it.
    fn is_news(&mut self, about: &str, word: &str) -> bool {
        self.0.insert(about.to_owned(), word.to_owned()).is_none_or(|last| last != word)
    }
}

/// What the file says that a run left that was killed, for one that is asked to stop takes it away: true until the tools
/// answer again. Without this a first look that fails, as while a driver loads, would take everything back.
fn remembered(options: &Options) -> Known {
    let Some(path) = &options.output else { return Known::new() };
    let all = xpu::read_file(path).unwrap_or_else(|error| {
        if !error.is_missing() {
            tracing::warn!(error = chain(&error), "what was described before is not known");
        }
        Vec::new()
    });
    let own = |vendor: &Vendor| all.iter().filter(|xpu| xpu.vendor == vendor.name).cloned().collect();
    VENDORS.iter().map(|vendor| (vendor.name, own(vendor))).collect()
}

/// Asks every vendor whose devices are there, and says whether all answered, each of their cards too. Of one that does not,
/// what is known stays: its devices are there, though its tool is not. (Differs: upstream ends, and takes everything back.)
fn look(options: &Options, heard: &mut Heard) -> bool {
    let through =
        options.host_root.as_ref().map(|root| vec!["chroot".to_owned(), root.display().to_string()]);
    let stuck = heard.stuck.clone();
    let tools = Host { through: through.unwrap_or_default(), time_limit: TOOL_TIME_LIMIT, stuck };
    let machine =
        Machine { tools: &tools, root: &options.root, dev: &options.dev, remarks: RefCell::default() };
    look_at(&machine, &pci::identities(&options.root), heard)
}

fn look_at(
    machine: &Machine<'_>,
    devices: &[Identity],
    Heard { known, told, remarks, .. }: &mut Heard,
) -> bool {
    let mut is_whole = true;
    for vendor in VENDORS {
        if !vendor.is_present(devices) {
            known.remove(vendor.name);
            continue;
        }
        match vendor.cards(machine) {
            Ok(cards) => {
                is_whole &= cards.iter().all(|card| card.told.is_ok());
                let before = known.remove(vendor.name).unwrap_or_default();
                let devices = described(vendor.name, cards, before, told);
                if told.is_news(vendor.name, &format!("{} devices", devices.len())) {
                    tracing::info!(vendor = vendor.name, devices = devices.len(), "devices found");
                }
                known.insert(vendor.name, devices);
            }
            Err(error) => {
                is_whole = false;
                tell(vendor.name, &error, told);
            }
        }
    }
    let found = machine.remarks.take();
    found.difference(remarks).for_each(|remark| tracing::warn!("{remark}"));
    *remarks = found;
    let is_bare = known.values().all(Vec::is_empty);
    if told.is_news("all", if is_bare { "none" } else { "some" }) && is_bare {
        tracing::warn!("no accelerator of a known vendor was found");
    }
    is_whole
}

/// Why a vendor's devices are not described, when that is new.
fn tell(vendor: &str, error: &AskError, told: &mut Told) {
    let text = chain(error);
    if !told.is_news(vendor, &text) {
        return;
    }
    match error {
        // A machine may have other parts of a vendor, and no accelerator.
        AskError::Tool(Fault::Missing(_)) => {
            tracing::warn!(vendor, error = text, "devices cannot be described: there is no tool for them");
        }
        _ => tracing::error!(vendor, error = text, "devices cannot be described"),
    }
}

/// A vendor's cards. One that failed stays as it was; one that nobody ever described is left out, for the others work.
fn described(vendor: &str, cards: Vec<Card>, mut before: Vec<Xpu>, told: &mut Told) -> Vec<Xpu> {
    let describe = |card: Card| {
        let about = format!("{vendor} {}", card.minor);
        let minor = card.minor;
        let error = match card.told {
            Ok(device) => {
                told.0.remove(&about);
                return Some(device);
            }
            Err(error) => chain(&error),
        };
        if told.is_news(&about, &error) {
            tracing::warn!(vendor, minor, error, "a device cannot be described");
        }
        let at = before.iter().position(|device| device.minor == minor)?;
        Some(before.swap_remove(at))
    };
    cards.into_iter().filter_map(describe).collect()
}

/// Writes the file that koordlet reads, whole or not at all, unless it says so already.
fn describe(options: &Options, known: &Known) -> Result<(), MainError> {
    let Some(path) = &options.output else { return Ok(()) };
    let all: Vec<&Xpu> = known.values().flatten().collect();
    let written =
        serde_json::to_vec_pretty(&all).map_err(io::Error::from).and_then(|text| replace(path, &text));
    written.map_err(|source| MainError::Write { path: path.clone(), source })
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    // koordlet passes over files with such names.
    let fresh = path.with_extension("tmp");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, path)
}

/// Takes the description back: nobody keeps it true any more.
fn leave(options: &Options) -> Result<ExitCode, MainError> {
    let Some(path) = options.output.as_ref().filter(|_| !options.is_once) else {
        return Ok(ExitCode::SUCCESS);
    };
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(MainError::Write { path: path.clone(), source })
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_daemon::vendor::tests::Fake;
    use crate::devices::xpu::read_dir;
    use crate::overheard::overheard;

    fn options(dir: &Path) -> Options {
        let words = [
            format!("--prints-output-file={}/infos/ic-device", dir.display()),
            format!("--sys-root-dir={}/sys", dir.display()),
            "--host-root-dir=/".to_owned(),
        ];
        match options::parse(words, |_| None) {
            Ok(Request::Run(options)) => *options,
            other => panic!("{other:?}"),
        }
    }

    /// A card of Kunlun; its tool is not installed.
    fn put_card(dir: &Path) {
        let card = dir.join("sys/bus/pci/devices/0000:c1:00.0");
        fs::create_dir_all(&card).unwrap();
        fs::write(card.join("vendor"), "0x1d22\n").unwrap();
        fs::write(card.join("device"), "0x3684\n").unwrap();
    }

    #[test]
    fn what_an_earlier_run_described_stays_until_its_tool_answers() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        put_card(dir.path());
        let infos = dir.path().join("infos");
        fs::create_dir_all(&infos).unwrap();
        let xpu = |vendor: &str| Xpu { vendor: vendor.into(), uuid: "0".into(), ..Xpu::default() };
        let both = serde_json::to_string(&[xpu("kunlun"), xpu("metax")]).unwrap();
        for (name, text, want) in [
            ("good", both.as_str(), vec![xpu("kunlun")]),
            ("half written", "[{", vec![]),
            ("empty", "", vec![]),
            ("null", "null", vec![]),
        ] {
            fs::write(infos.join("ic-device"), text).unwrap();
            let mut heard = Heard { known: remembered(&options), ..Heard::default() };
            assert!(!look(&options, &mut heard), "{name}");
            describe(&options, &heard.known).unwrap();
            assert_eq!(read_dir(&infos).unwrap(), want, "{name}");
        }
        fs::remove_dir_all(&infos).unwrap();
        assert!(remembered(&options).values().all(Vec::is_empty), "no file");
    }

    #[test]
    fn a_device_that_nobody_knows_the_place_of_is_told_once() {
        let kunlun = [Identity { vendor: 0x1d22, product: 0x3684 }];
        let all = "0000:ff:00.0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 32768 19 20 P900 22\n";
        let fake = Fake::new(&[("xpu_smi -m", all), ("xpu_smi -m -d /dev/xpu0", all)]);
        let mut heard = Heard::default();
        for want in [2, 0] {
            let (_, told) = overheard(|| look_at(&fake.machine(), &kunlun, &mut heard));
            assert_eq!(told.len(), want, "{told:?}");
            let remark = "WARN nobody knows where device 0000:ff:00.0 sits";
            assert_eq!(told.iter().filter(|text| text.starts_with(remark)).count(), want / 2, "{told:?}");
        }
    }

    #[test]
    fn what_repeats_is_told_once() {
        let kunlun = [Identity { vendor: 0x1d22, product: 0x3684 }];
        let all = "0000:c1:00.0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 32768 19 20 P900 22\n";
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let mut heard = Heard::default();
        let mut told = |answers: &[(&'static str, &'static str)], devices: &[Identity]| {
            let fake = Fake::new(answers);
            overheard(|| look_at(&fake.machine(), devices, &mut heard)).1
        };
        let none = "WARN no accelerator of a known vendor was found";
        assert_eq!(told(&[], &[]), [none]);
        assert_eq!(told(&[], &[]), [""; 0]);
        let failed = told(&[], &kunlun);
        assert!(
            failed.len() == 1 && failed[0].starts_with("ERROR devices cannot be described"),
            "{failed:?}"
        );
        assert_eq!(told(&[], &kunlun), [""; 0]);
        let good = [("xpu_smi -m", all), ("xpu_smi -m -d /dev/xpu0", all)];
        let found = "INFO devices found vendor=\"kunlun\" devices=1";
        assert_eq!(told(&good, &kunlun), [found]);
        assert_eq!(told(&good, &kunlun), [""; 0]);
        let busy = [("xpu_smi -m", all), ("xpu_smi -m -d /dev/xpu0", "refused: busy")];
        let card = told(&busy, &kunlun);
        assert!(card.len() == 1 && card[0].starts_with("WARN a device cannot be described"), "{card:?}");
        assert_eq!(told(&busy, &kunlun), [""; 0]);
        assert_eq!(told(&good, &kunlun), [""; 0], "the card works again");
        assert_eq!(told(&busy, &kunlun), card);
        // No tool at all is no fault of anybody.
        put_card(dir.path());
        let (_, absent) = overheard(|| look(&options, &mut Heard::default()));
        assert!(absent[0].starts_with("WARN devices cannot be described: there is no tool"), "{absent:?}");
    }

    #[test]
    fn a_tool_that_fails_again_is_asked_less_often() {
        let interval = Duration::from_secs(900);
        let pauses: Vec<u64> = [0, 1, 2, 3, 5, 6, u32::MAX]
            .iter()
            .map(|failures| pause(interval, *failures).as_secs())
            .collect();
        assert_eq!(pauses, [900, 30, 60, 120, 480, 900, 900]);
        assert_eq!(pause(Duration::from_secs(10), 1), Duration::from_secs(10));
    }

    #[test]
    fn a_faulty_configuration_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let read = |word: &str| options::parse([word.to_owned()], |_| None);
        let next = renewed(&options, read("--sleep-interval=1m"));
        assert_eq!((next.interval, next.output.is_some()), (Duration::from_secs(60), true));
        for word in ["--sleep-interval=0s", "--config-file=/no/such/file", "--help"] {
            let next = renewed(&options, read(word));
            assert_eq!((next.interval, next.output), (options.interval, options.output.clone()), "{word}");
        }
    }

    /// Three cards of Kunlun; the second answers as told, and what is asked of each is counted.
    #[test]
    fn a_card_that_does_not_answer_keeps_its_description() {
        const ALL: &str =
            "0000:c1:00.0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 32768 19 20 P900 22\nb\nc\n";
        let devices = [Identity { vendor: 0x1d22, product: 0x3684 }];
        let known = |model: &str, minor: &str| Xpu {
            vendor: "kunlun".into(),
            model: model.into(),
            minor: minor.into(),
            ..Xpu::default()
        };
        for (name, second, before, want, asked) in [
            ("good", ALL, vec!["0", "1", "2"], vec!["P900 0", "P900 1", "P900 2"], 4),
            ("refused", "refused: busy", vec!["0", "1", "2", "3"], vec!["P900 0", "P800 1", "P900 2"], 4),
            ("never described", "refused: busy", vec![], vec!["P900 0", "P900 2"], 4),
            ("hangs", "hangs", vec!["2", "1"], vec!["P900 0", "P800 1", "P800 2"], 3),
        ] {
            let fake = Fake::new(&[
                ("xpu_smi -m", ALL),
                ("xpu_smi -m -d /dev/xpu0", ALL),
                ("xpu_smi -m -d /dev/xpu1", second),
                ("xpu_smi -m -d /dev/xpu2", ALL),
            ]);
            let before = before.into_iter().map(|minor| known("P800", minor)).collect();
            let known = Known::from([("kunlun", before)]);
            let mut heard = Heard { known, ..Heard::default() };
            assert_eq!(look_at(&fake.machine(), &devices, &mut heard), second == ALL, "{name}");
            let found: Vec<String> =
                heard.known["kunlun"].iter().map(|xpu| format!("{} {}", xpu.model, xpu.minor)).collect();
            assert_eq!(found, want, "{name}");
            assert_eq!(fake.asked.lock().unwrap().len(), asked, "{name}");
        }
    }

    #[test]
    fn a_vendor_that_does_not_answer_keeps_its_devices() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        // Nothing there: described as such.
        let mut heard = Heard::default();
        assert!(look(&options, &mut heard));
        describe(&options, &heard.known).unwrap();
        assert_eq!(read_dir(&dir.path().join("infos")).unwrap(), []);
        // A card whose tool is not installed: what was known of it stays.
        put_card(dir.path());
        let xpu = Xpu { vendor: "kunlun".into(), uuid: "xpu-0".into(), ..Xpu::default() };
        heard.known.insert("kunlun", vec![xpu.clone()]);
        heard.known.insert("huawei", vec![Xpu::default()]);
        assert!(!look(&options, &mut heard));
        describe(&options, &heard.known).unwrap();
        assert_eq!(read_dir(&dir.path().join("infos")).unwrap(), [xpu], "cards that were taken out are gone");
        leave(&options).unwrap();
        leave(&options).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("infos")).unwrap().count(), 0);
    }
}
