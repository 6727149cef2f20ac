//! GPUs of the NVIDIA driver: finding them, measuring them, and whose part of the use is whose.
//! Spec: koordlet-observe 6.1, 14 (10).

use std::sync::Arc;
use std::time::{Duration, Instant};

use koord_linux::nvml::{Gpu, GpuError, GpuUse, Library};
use koord_linux::pci::{self, Place};
use koord_linux::root::Root;

/// A node whose driver does not answer yet is asked again so much later.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// A card gives no more than this of itself.
const PERCENT_MAX: f64 = 100.0;

/// What the GPU driver can be asked.
pub trait Driver: Send {
    fn version(&self) -> Result<String, GpuError>;
    fn bus_ids(&self, root: &Root) -> Vec<String>;
    fn gpu(&self, bus_id: &str) -> Result<Gpu, GpuError>;
    fn usage(&self, gpu: &Gpu, since_us: u64) -> Result<GpuUse, GpuError>;
    fn needs_recovery(&self, gpu: &Gpu) -> Option<bool>;
}

impl Driver for Library {
    fn version(&self) -> Result<String, GpuError> {
        self.driver_version()
    }

    fn bus_ids(&self, root: &Root) -> Vec<String> {
        Library::bus_ids(self, root)
    }

    fn gpu(&self, bus_id: &str) -> Result<Gpu, GpuError> {
        Library::gpu(self, bus_id)
    }

    fn usage(&self, gpu: &Gpu, since_us: u64) -> Result<GpuUse, GpuError> {
        Library::usage(self, gpu, since_us)
    }

    fn needs_recovery(&self, gpu: &Gpu) -> Option<bool> {
        Library::needs_recovery(self, gpu)
    }
}

/// How the driver is got hold of.
pub type Load = Box<dyn FnMut() -> Result<Box<dyn Driver>, GpuError> + Send>;

/// What one round saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub gpus: Vec<GpuReading>,
}

/// What one card did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReading {
    pub minor: u32,
    pub uuid: Arc<str>,
    pub usage: GpuUse,
}

/// What somebody uses of one card.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage<'r> {
    pub gpu: &'r GpuReading,
    /// Percent of the card.
    pub core: f64,
    pub memory_bytes: f64,
}

impl Reading {
    /// Whether any process runs on any card.
    pub fn is_used(&self) -> bool {
        self.gpus.iter().any(|gpu| !gpu.usage.processes.is_empty())
    }

    /// What the node uses: every card, idle ones too.
    pub fn of_node(&self) -> impl Iterator<Item = Usage<'_>> {
        self.gpus.iter().map(|gpu| {
            let summed = sum(gpu, |_| true).unwrap_or(Usage { gpu, core: 0.0, memory_bytes: 0.0 });
            // Differs: upstream adds up processes, which misses what the driver holds and may pass 100 percent.
            Usage {
                gpu,
                core: gpu.usage.busy_percent.map_or(summed.core, f64::from),
                memory_bytes: gpu.usage.memory_bytes.map_or(summed.memory_bytes, bytes),
            }
        })
    }

    /// What some processes use together: the cards that they touch.
    pub fn of_processes(&self, is_one: impl Fn(u32) -> bool) -> impl Iterator<Item = Usage<'_>> {
        self.gpus.iter().filter_map(move |gpu| sum(gpu, &is_one))
    }
}

/// None when none of the processes is on the card.
fn sum(gpu: &GpuReading, is_one: impl Fn(u32) -> bool) -> Option<Usage<'_>> {
    let own = || gpu.usage.processes.iter().filter(|process| is_one(process.pid));
    own().next()?;
    Some(Usage {
        gpu,
        core: own().map(|process| f64::from(process.busy_percent)).sum::<f64>().min(PERCENT_MAX),
        memory_bytes: own().map(|process| bytes(process.memory_bytes)).sum(),
    })
}

/// Exact up to 2^53, which no card has.
#[expect(clippy::cast_precision_loss, reason = "no card has so much memory")]
fn bytes(count: u64) -> f64 {
    count as f64
}

/// The cards of this node.
pub struct Gpus {
    load: Load,
    driver: Option<Box<dyn Driver>>,
    next_load: Option<Instant>,
    cards: Vec<Card>,
    /// Cards that could not be read when the driver was loaded; they are tried again.
    unread: Vec<String>,
}

struct Card {
    gpu: Gpu,
    uuid: Arc<str>,
    place: Place,
    since_us: u64,
    /// Whether the last round could not read it; told once.
    is_silent: bool,
}

impl Gpus {
    pub fn new(load: Load) -> Gpus {
        Gpus { load, driver: None, next_load: None, cards: Vec::new(), unread: Vec::new() }
    }

    /// Looks for the driver and for cards that are not known yet, once a minute while something is missing.
    /// Says whether cards were added.
    pub fn find(&mut self, now: Instant, root: &Root) -> bool {
        let is_complete = self.driver.is_some() && self.unread.is_empty() && !self.cards.is_empty();
        if is_complete || self.next_load.is_some_and(|next| now < next) {
            return false;
        }
        let is_first = self.next_load.is_none();
        self.next_load = Some(now + RETRY_INTERVAL);
        if self.driver.is_none() {
            match (self.load)() {
                Ok(driver) => self.driver = Some(driver),
                // No driver is normal on most nodes: told once.
                Err(error) if is_first => tracing::info!(%error, "no GPUs to look after"),
                Err(_) => {}
            }
        }
        let Some(driver) = &self.driver else { return false };
        let bus_ids = driver.bus_ids(root);
        let before = self.cards.len();
        self.unread.clear();
        for bus_id in bus_ids {
            if self.cards.iter().any(|card| card.gpu.bus_id == bus_id) {
                continue;
            }
            match driver.gpu(&bus_id) {
                Ok(gpu) => self.cards.push(Card::new(gpu, root)),
                Err(error) => {
                    if is_first {
                        tracing::warn!(%error, "a GPU does not answer; it is tried again every minute");
                    }
                    self.unread.push(bus_id);
                }
            }
        }
        self.cards.sort_by_key(|card| card.gpu.minor);
        self.cards.len() > before
    }

    /// One round. A card that does not answer is left out.
    pub fn measure(&mut self) -> Reading {
        let Some(driver) = &self.driver else { return Reading::default() };
        let mut reading = Reading::default();
        for card in &mut self.cards {
            match driver.usage(&card.gpu, card.since_us) {
                Ok(usage) => {
                    card.since_us = usage.newest_sample_us;
                    card.is_silent = false;
                    reading.gpus.push(GpuReading { minor: card.gpu.minor, uuid: card.uuid.clone(), usage });
                }
                Err(error) => {
                    if !card.is_silent {
                        tracing::warn!(gpu = card.gpu.bus_id, %error, "a GPU cannot be measured");
                    }
                    card.is_silent = true;
                }
            }
        }
        reading
    }

    pub fn driver(&self) -> Option<&dyn Driver> {
        self.driver.as_deref()
    }

    pub fn bus_ids(&self) -> Vec<String> {
        self.cards.iter().map(|card| card.gpu.bus_id.clone()).collect()
    }

    /// The cards and where they sit, in order of minor number.
    pub fn list(&self) -> impl Iterator<Item = (&Gpu, &Place)> {
        self.cards.iter().map(|card| (&card.gpu, &card.place))
    }
}

impl Card {
    fn new(gpu: Gpu, root: &Root) -> Card {
        let place = pci::place(root, &gpu.bus_id).unwrap_or_else(|error| {
            tracing::warn!(gpu = gpu.bus_id, %error, "where a GPU sits cannot be told");
            // No root, so that no topology is reported.
            Place::default()
        });
        Card { uuid: gpu.uuid.as_str().into(), gpu, place, since_us: 0, is_silent: false }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use koord_linux::nvml::{NvmlError, ProcessUse};

    use super::*;

    /// A driver that answers what a test tells it.
    #[derive(Clone, Default)]
    pub(crate) struct Fake(pub(crate) Arc<Mutex<Told>>);

    #[derive(Default)]
    pub(crate) struct Told {
        pub(crate) is_loaded: bool,
        /// By bus id; a card that does not answer is None.
        pub(crate) gpus: BTreeMap<String, Option<Gpu>>,
        pub(crate) uses: BTreeMap<String, GpuUse>,
        pub(crate) needs_recovery: Option<bool>,
        pub(crate) since: Vec<u64>,
    }

    impl Fake {
        pub(crate) fn load(&self) -> Load {
            let fake = self.clone();
            Box::new(move || match fake.0.lock().unwrap().is_loaded {
                true => Ok(Box::new(fake.clone())),
                false => Err(GpuError::Absent { source: NvmlError::DriverNotLoaded }),
            })
        }
    }

    fn lost(bus_id: &str) -> GpuError {
        GpuError::Read { what: "the handle", gpu: bus_id.to_owned(), source: NvmlError::GpuLost }
    }

    impl Driver for Fake {
        fn version(&self) -> Result<String, GpuError> {
            Ok("460.91.03".to_owned())
        }

        fn bus_ids(&self, _: &Root) -> Vec<String> {
            self.0.lock().unwrap().gpus.keys().cloned().collect()
        }

        fn gpu(&self, bus_id: &str) -> Result<Gpu, GpuError> {
            let told = self.0.lock().unwrap();
            told.gpus.get(bus_id).cloned().flatten().ok_or_else(|| lost(bus_id))
        }

        fn usage(&self, gpu: &Gpu, since_us: u64) -> Result<GpuUse, GpuError> {
            let mut told = self.0.lock().unwrap();
            told.since.push(since_us);
            told.uses.get(&gpu.bus_id).cloned().ok_or_else(|| lost(&gpu.bus_id))
        }

        fn needs_recovery(&self, _: &Gpu) -> Option<bool> {
            self.0.lock().unwrap().needs_recovery
        }
    }

    pub(crate) fn gpu(minor: u32) -> Gpu {
        Gpu {
            uuid: format!("GPU-{minor}"),
            minor,
            bus_id: format!("0000:{minor:02x}:00.0"),
            name: "NVIDIA A100-SXM4-80GB".to_owned(),
            memory_bytes: 16_000,
        }
    }

    fn reading(uses: Vec<GpuUse>) -> Reading {
        let cards = uses.into_iter().zip(0..);
        let gpus = cards.map(|(usage, minor)| GpuReading { minor, uuid: "u".into(), usage });
        Reading { gpus: gpus.collect() }
    }

    fn process(pid: u32, busy_percent: u32, memory_bytes: u64) -> ProcessUse {
        ProcessUse { pid, busy_percent, memory_bytes }
    }

    fn shown<'r>(usages: impl Iterator<Item = Usage<'r>>) -> Vec<(u32, f64, f64)> {
        usages.map(|usage| (usage.gpu.minor, usage.core, usage.memory_bytes)).collect()
    }

    #[test]
    fn whose_part_is_whose() {
        let processes = vec![process(1, 70, 1500), process(2, 50, 500)];
        let busy = GpuUse { processes, ..GpuUse::default() };
        let seen = reading(vec![busy.clone(), GpuUse::default()]);
        // koordlet-observe#13.4.D24, but for the sum of 120 percent, which no card can give.
        assert_eq!(shown(seen.of_node()), [(0, 100.0, 2000.0), (1, 0.0, 0.0)]);
        assert_eq!(shown(seen.of_processes(|pid| [1, 9].contains(&pid))), [(0, 70.0, 1500.0)]);
        assert_eq!(shown(seen.of_processes(|pid| pid == 9)), []);
        assert!(seen.is_used() && !reading(vec![GpuUse::default()]).is_used());
        // koordlet-observe#13.4.D6: what the card itself says counts for the node.
        let told = GpuUse { busy_percent: Some(35), memory_bytes: Some(4000), ..busy };
        assert_eq!(shown(reading(vec![told]).of_node()), [(0, 35.0, 4000.0)]);
    }

    #[test]
    fn a_driver_that_comes_late_is_found_and_one_bad_card_hides_no_other() {
        let fake = Fake::default();
        let mut gpus = Gpus::new(fake.load());
        let root = Root::host("/nowhere");
        let start = Instant::now();
        assert!(!gpus.find(start, &root));
        assert_eq!(gpus.measure(), Reading::default());
        {
            let mut told = fake.0.lock().unwrap();
            told.is_loaded = true;
            told.gpus.insert(gpu(1).bus_id, Some(gpu(1)));
            told.gpus.insert(gpu(0).bus_id, None);
            told.uses.insert(gpu(1).bus_id, GpuUse { newest_sample_us: 77, ..GpuUse::default() });
        }
        assert!(!gpus.find(start + Duration::from_secs(59), &root), "not before a minute has passed");
        assert!(gpus.find(start + Duration::from_secs(60), &root));
        assert_eq!(gpus.bus_ids(), [gpu(1).bus_id]);
        assert_eq!(gpus.measure().gpus.len(), 1);
        fake.0.lock().unwrap().gpus.insert(gpu(0).bus_id, Some(gpu(0)));
        assert!(gpus.find(start + Duration::from_secs(120), &root));
        assert_eq!(gpus.bus_ids(), [gpu(0).bus_id, gpu(1).bus_id], "in order of minor number");
        let seen = gpus.measure();
        assert_eq!(seen.gpus.len(), 1, "card 0 cannot be measured");
        assert_eq!(fake.0.lock().unwrap().since, [0, 0, 77], "each card from its own newest sample on");
        assert!(!gpus.find(start + Duration::from_secs(600), &root), "nothing is missing any more");
    }
}
