//! The thread that asks drivers, and the one that waits for their errors.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use koord_linux::nvml::{Library, Sighting};
use koord_linux::rdma;
use koord_linux::root::Root;
use tokio::sync::watch;

use super::gpu::{Driver, Gpus, Load, Reading};
use super::health::{Incident, Marks};
use super::xpu::{Xpu, read_dir};
use super::{GpuDevice, Inventory, Options};

/// How long one wait for errors lasts; also the time in which the waiting thread ends.
const WAIT: Duration = Duration::from_secs(5);
/// Cards that do not work are looked at again so often.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(60);

/// What the threads publish. They end when the last of these has gone.
#[derive(Clone, Debug)]
pub struct Devices {
    inventory: watch::Receiver<Option<Arc<Inventory>>>,
    reading: watch::Receiver<Arc<Reading>>,
}

impl Devices {
    /// What is there. None before the first look.
    pub fn inventory(&self) -> Option<Arc<Inventory>> {
        self.inventory.borrow().clone()
    }

    /// What the last round saw.
    pub fn reading(&self) -> Arc<Reading> {
        self.reading.borrow().clone()
    }
}

/// Starts looking.
pub fn start(root: Root, options: Options) -> io::Result<Devices> {
    let load = || -> Result<Box<dyn Driver>, _> { Ok(Box::new(Library::load()?)) };
    let (inventory_sender, inventory) = watch::channel(None);
    let (reading_sender, reading) = watch::channel(Arc::default());
    let mut worker = Worker::new(root, options, Box::new(load), Box::new(spawn_watch));
    thread::Builder::new().name("devices".to_owned()).spawn(move || {
        while !inventory_sender.is_closed() || !reading_sender.is_closed() {
            let now = Instant::now();
            reading_sender.send_replace(Arc::new(worker.measure(now)));
            if let Some(next) = worker.scan(now) {
                inventory_sender.send_if_modified(|published| {
                    let is_new = published.as_deref() != Some(&next);
                    if is_new {
                        *published = Some(Arc::new(next));
                    }
                    is_new
                });
            }
            worker.rest(now);
        }
    })?;
    Ok(Devices { inventory, reading })
}

/// Starts to wait for errors of these cards, until the owner of the token is gone.
type Watcher = Box<dyn Fn(Vec<String>, Sender<Incident>, Weak<()>) -> io::Result<()> + Send>;

struct Worker {
    root: Root,
    options: Options,
    gpus: Gpus,
    marks: Marks,
    xpus: Vec<Xpu>,
    watcher: Watcher,
    /// Held by the present watch of errors alone.
    watching: Option<Arc<()>>,
    sender: Sender<Incident>,
    incidents: Receiver<Incident>,
    next_scan: Option<Instant>,
    next_recovery: Option<Instant>,
    is_xpu_fault_told: bool,
}

impl Worker {
    fn new(root: Root, options: Options, load: Load, watcher: Watcher) -> Worker {
        let (sender, incidents) = channel();
        Worker {
            root,
            options,
            gpus: Gpus::new(load),
            marks: Marks::default(),
            xpus: Vec::new(),
            watcher,
            watching: None,
            sender,
            incidents,
            next_scan: None,
            next_recovery: None,
            is_xpu_fault_told: false,
        }
    }

    /// One round of measuring. Nothing without accelerators, or while nothing is measured.
    fn measure(&mut self, now: Instant) -> Reading {
        if !self.options.is_accelerators_on {
            return Reading::default();
        }
        if self.gpus.find(now, &self.root) {
            let token = Arc::new(());
            let watch = (self.watcher)(self.gpus.bus_ids(), self.sender.clone(), Arc::downgrade(&token));
            match watch {
                Ok(()) => self.watching = Some(token),
                Err(error) => tracing::warn!(%error, "GPUs are not watched for errors"),
            }
        }
        if self.options.measure_interval.is_none() {
            return Reading::default();
        }
        self.gpus.measure()
    }

    /// What is there, when it is time to look again.
    fn scan(&mut self, now: Instant) -> Option<Inventory> {
        let mut incidents: Vec<Incident> = Vec::new();
        incidents.extend(self.incidents.try_iter());
        for incident in &incidents {
            self.note(incident, now);
        }
        let is_due = self.next_scan.is_none_or(|next| now >= next) || !incidents.is_empty();
        if !is_due {
            return None;
        }
        self.next_scan = Some(now + self.options.scan_interval);
        self.recover(now);
        Some(self.inventory())
    }

    /// Waits until the next round is due. An incident ends the rest, for it should be told at once.
    fn rest(&mut self, since: Instant) {
        let left = self.round_interval().saturating_sub(since.elapsed());
        match self.incidents.recv_timeout(left) {
            Ok(incident) => {
                self.note(&incident, Instant::now());
                self.next_scan = None;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
    }

    fn round_interval(&self) -> Duration {
        self.options.measure_interval.unwrap_or(self.options.scan_interval)
    }

    fn note(&mut self, incident: &Incident, now: Instant) {
        let driver = self.gpus.driver();
        let missing = |bus_id: &str| driver.and_then(|driver| Some(driver.gpu(bus_id).err()?.to_string()));
        self.marks.note(incident, &self.gpus.bus_ids(), &self.options.ignored_xids, missing);
        self.next_recovery = Some(now + RECOVERY_INTERVAL);
    }

    fn recover(&mut self, now: Instant) {
        if self.marks.is_empty() || self.next_recovery.is_some_and(|next| now < next) {
            return;
        }
        self.next_recovery = Some(now + RECOVERY_INTERVAL);
        let Some(driver) = self.gpus.driver() else { return };
        self.marks
            .recover(|bus_id| driver.gpu(bus_id).is_ok_and(|gpu| driver.needs_recovery(&gpu) == Some(false)));
    }

    fn inventory(&mut self) -> Inventory {
        let mut inventory = Inventory::default();
        if self.options.is_accelerators_on {
            self.look_for_xpus();
            inventory.xpus = self.xpus.clone();
            inventory.driver_version = self.gpus.driver().and_then(|driver| driver.version().ok());
            let device = |(gpu, place): (&koord_linux::nvml::Gpu, &koord_linux::pci::Place)| GpuDevice {
                gpu: gpu.clone(),
                place: place.clone(),
                ailment: self.marks.of(&gpu.bus_id).cloned(),
            };
            inventory.gpus = self.gpus.list().map(device).collect();
        }
        if self.options.is_rdma_on {
            let (cards, faults) = rdma::cards(&self.root);
            inventory.cards = cards;
            for error in faults {
                tracing::debug!(%error, "an RDMA card is left out");
            }
        }
        inventory
    }

    /// What was described last stays while the files cannot be read.
    fn look_for_xpus(&mut self) {
        match read_dir(&self.options.xpu_dir) {
            Ok(xpus) => {
                self.xpus = xpus;
                self.is_xpu_fault_told = false;
            }
            Err(error) => {
                if !self.is_xpu_fault_told && !error.is_missing() {
                    tracing::warn!(error = &error as &dyn std::error::Error, "accelerators cannot be read");
                } else if !self.is_xpu_fault_told {
                    tracing::debug!(%error, "no files describe accelerators");
                }
                self.is_xpu_fault_told = true;
            }
        }
    }
}

/// Waits for errors on a thread of its own.
fn spawn_watch(bus_ids: Vec<String>, sender: Sender<Incident>, token: Weak<()>) -> io::Result<()> {
    let watch = move || {
        while token.upgrade().is_some() {
            if watch_once(&bus_ids, &sender, &token).is_none() {
                return;
            }
            thread::sleep(WAIT);
        }
    };
    thread::Builder::new().name("gpu-errors".to_owned()).spawn(watch).map(|_| ())
}

/// One life of a watch. None when nothing is left to watch, or nobody listens.
fn watch_once(bus_ids: &[String], sender: &Sender<Incident>, token: &Weak<()>) -> Option<()> {
    let Ok(library) = Library::load() else { return Some(()) };
    let (watch, unwatched) = match library.watch(bus_ids) {
        Ok(started) => started,
        Err(error) => {
            tracing::warn!(%error, "GPUs are not watched for errors; trying again");
            return Some(());
        }
    };
    let is_nothing_left = unwatched.len() == bus_ids.len();
    if !unwatched.is_empty() {
        sender.send(Incident::Unwatched(unwatched)).ok()?;
    }
    if is_nothing_left {
        return None;
    }
    while token.upgrade().is_some() {
        match watch.wait(WAIT) {
            Sighting::Quiet => {}
            Sighting::Xid { number, bus_id, uuid } => {
                sender.send(Incident::Xid { number, bus_id, uuid }).ok()?;
            }
            Sighting::Fault(error) => {
                tracing::warn!(%error, "the watch of GPUs broke");
                sender.send(Incident::Interrupted).ok()?;
                return Some(());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use koord_linux::nvml::GpuUse;

    use super::*;
    use crate::devices::gpu::tests::{Fake, gpu};

    /// The cards to watch, and where to tell of them.
    type Request = (Vec<String>, Sender<Incident>);

    #[test]
    fn errors_reach_the_inventory_and_leave_it_again() {
        let fake = Fake::default();
        {
            let mut told = fake.0.lock().unwrap();
            told.is_loaded = true;
            for minor in 0..2 {
                told.gpus.insert(gpu(minor).bus_id, Some(gpu(minor)));
                told.uses.insert(gpu(minor).bus_id, GpuUse::default());
            }
        }
        let heard: Arc<Mutex<Vec<Request>>> = Arc::default();
        let listener = heard.clone();
        let watcher = move |cards: Vec<String>, sender: Sender<Incident>, _: Weak<()>| {
            listener.lock().unwrap().push((cards, sender));
            Ok(())
        };
        let dir = tempfile::tempdir().unwrap();
        let options =
            Options { is_accelerators_on: true, xpu_dir: dir.path().join("xpus"), ..Options::default() };
        let mut worker = Worker::new(Root::host(dir.path()), options, fake.load(), Box::new(watcher));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(worker.measure(start).gpus.len(), 2);
        let first = worker.scan(start).unwrap();
        assert_eq!(first.driver_version.as_deref(), Some("460.91.03"));
        let ailments = |inventory: &Inventory| -> Vec<Option<String>> {
            let devices = inventory.gpus.iter();
            devices.map(|device| device.ailment.as_ref().map(|ailment| ailment.code.clone())).collect()
        };
        assert_eq!(ailments(&first), [None, None]);
        assert_eq!(worker.scan(after(1)), None, "not before the interval has passed");
        let (cards, sender) = heard.lock().unwrap().pop().unwrap();
        assert_eq!(cards, [gpu(0).bus_id, gpu(1).bus_id]);
        let bus_id = Some(gpu(1).bus_id);
        sender.send(Incident::Xid { number: 79, bus_id, uuid: gpu(1).uuid }).unwrap();
        let ill = worker.scan(after(1)).expect("an incident is told at once");
        assert_eq!(ailments(&ill), [None, Some("Xid79".to_owned())]);
        assert_eq!(ill.is_gpu_healthy(&gpu(1).uuid), Some(false));
        assert_eq!(ailments(&worker.scan(after(100)).unwrap()), [None, Some("Xid79".to_owned())]);
        fake.0.lock().unwrap().needs_recovery = Some(false);
        assert_eq!(ailments(&worker.scan(after(200)).unwrap()), [None, None]);
    }

    #[test]
    fn files_that_turn_bad_leave_what_was_known() {
        let dir = tempfile::tempdir().unwrap();
        let xpu_dir = dir.path().join("xpus");
        let options = Options { is_accelerators_on: true, xpu_dir: xpu_dir.clone(), ..Options::default() };
        let watcher = |_: Vec<String>, _: Sender<Incident>, _: Weak<()>| Ok(());
        let mut worker =
            Worker::new(Root::host(dir.path()), options, Fake::default().load(), Box::new(watcher));
        let start = Instant::now();
        let mut look = |seconds| worker.scan(start + Duration::from_secs(seconds)).unwrap().xpus.len();
        assert_eq!(look(0), 0);
        std::fs::create_dir(&xpu_dir).unwrap();
        std::fs::write(xpu_dir.join("a"), r#"[{"uuid":"x"}]"#).unwrap();
        assert_eq!(look(10), 1);
        std::fs::write(xpu_dir.join("b"), "").unwrap();
        assert_eq!(look(20), 1, "koordlet-observe#13.4.D23");
        std::fs::remove_file(xpu_dir.join("a")).unwrap();
        std::fs::write(xpu_dir.join("b"), "[]").unwrap();
        assert_eq!(look(30), 0, "an empty list is an answer");
    }

    #[test]
    fn nothing_is_asked_when_nothing_is_wanted() {
        let fake = Fake::default();
        fake.0.lock().unwrap().is_loaded = true;
        fake.0.lock().unwrap().gpus.insert(gpu(0).bus_id, Some(gpu(0)));
        let options = Options { is_rdma_on: true, ..Options::default() };
        let watcher = |_: Vec<String>, _: Sender<Incident>, _: Weak<()>| Ok(());
        let mut worker = Worker::new(Root::host("/nowhere"), options, fake.load(), Box::new(watcher));
        let now = Instant::now();
        assert_eq!(worker.measure(now), Reading::default());
        assert_eq!(worker.scan(now), Some(Inventory::default()));
    }

    #[test]
    fn cards_are_found_though_nothing_is_measured() {
        let fake = Fake::default();
        {
            let mut told = fake.0.lock().unwrap();
            told.is_loaded = true;
            told.gpus.insert(gpu(0).bus_id, Some(gpu(0)));
            told.uses.insert(gpu(0).bus_id, GpuUse::default());
        }
        for (measure_interval, measured, round) in [(Some(Duration::from_secs(2)), 1, 2), (None, 0, 3)] {
            let options = Options { is_accelerators_on: true, measure_interval, ..Options::default() };
            let watcher = |_: Vec<String>, _: Sender<Incident>, _: Weak<()>| Ok(());
            let mut worker = Worker::new(Root::host("/nowhere"), options, fake.load(), Box::new(watcher));
            let now = Instant::now();
            assert_eq!(worker.measure(now).gpus.len(), measured);
            assert_eq!(worker.scan(now).unwrap().gpus.len(), 1);
            assert_eq!(worker.round_interval().as_secs(), round);
        }
    }
}
