//! A node's files on disk: a thread writes what its pods do, and reads what they are allowed.
//!
//! Files are written in place, never replaced: whoever watches a node keeps them open, as with the kernel's.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use koord_api::cpuset::CpuSet;

use crate::nodes::host::{CGROUPS, CONTROLLERS, Change, Host, Limit, Tenant, file, machine};
use crate::nodes::shape::Shape;
use crate::nodes::usage::Use;

/// Between two writes of CPU time: short beside the second in which agents measure, or what they see would waver; longer
/// where there are many groups, so that a node writes some thousand files a second at most.
const TICK_MIN: Duration = Duration::from_millis(20);
const TICK_MAX: Duration = Duration::from_millis(200);
const TICK_OF_A_GROUP: Duration = Duration::from_micros(500);
/// Between two looks at the limits, and between two writes of everything else.
const LOOK: Duration = Duration::from_millis(500);

/// Stands in the folder of all nodes, and says that what is in it is ours to remove.
const MARK: &str = ".koord-sandbox";

/// Removes what a sandbox that was killed left in its folder of nodes.
pub fn clear_hosts(dir: &Path) -> io::Result<()> {
    if dir.join(MARK).exists() { fs::remove_dir_all(dir) } else { Ok(()) }
}

/// Makes the folder of all nodes, or refuses one with files of others.
fn claim(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    if !dir.join(MARK).exists() && fs::read_dir(dir)?.next().is_some() {
        let text = format!("{} holds files that are not of a sandbox", dir.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    fs::write(dir.join(MARK), "")
}

/// The last one out takes the folder of all nodes with it.
fn leave(dir: &Path) {
    let is_empty =
        |mut entries: fs::ReadDir| entries.all(|entry| entry.is_ok_and(|it| it.file_name() == MARK));
    if fs::read_dir(dir).is_ok_and(is_empty) {
        let _ = fs::remove_file(dir.join(MARK));
        let _ = fs::remove_dir(dir);
    }
}

/// Who is on the node, and what its own services use.
pub(super) struct News {
    pub(super) tenants: Vec<Tenant>,
    pub(super) system: Use,
}

/// The files of a node. They go when this is dropped.
#[derive(Debug)]
pub(super) struct Mirror {
    dir: PathBuf,
    /// None only while being dropped.
    news: Option<Sender<News>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    /// Makes the files of a node without pods, in a folder of its own. `authority` signed its kubelet's certificate.
    pub(super) fn start(dir: &Path, shape: &Shape, authority: &str) -> io::Result<Mirror> {
        dir.parent().map_or(Ok(()), claim)?;
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut tree = Tree::new(dir, shape);
        tree.make()?;
        tree.put("kubelet/pki/ca.crt", authority)?;
        let (news, inbox) = channel();
        let thread = std::thread::Builder::new().name("mirror".to_owned()).spawn(move || tree.run(&inbox))?;
        Ok(Mirror { dir: dir.to_owned(), news: Some(news), thread: Some(thread) })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn tell(&self, news: News) {
        if let Some(inbox) = &self.news {
            // A thread that has ended said why.
            let _ = inbox.send(news);
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.news = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "files of a simulated node stay");
        }
        self.dir.parent().into_iter().for_each(leave);
    }
}

/// What the thread owns.
struct Tree {
    dir: PathBuf,
    shape: Shape,
    host: Host,
    /// As they were at the last look.
    limits: BTreeMap<String, Limit>,
    /// A fault is told once, not ten times a second.
    is_faulty: bool,
}

impl Tree {
    fn new(dir: &Path, shape: &Shape) -> Tree {
        let (host, shape) = (Host::new(shape), shape.clone());
        Tree { dir: dir.to_owned(), shape, host, limits: BTreeMap::new(), is_faulty: false }
    }

    fn make(&mut self) -> io::Result<()> {
        for (path, text) in machine(&self.shape) {
            self.put(&path, &text)?;
        }
        for folder in ["run", "data"] {
            fs::create_dir_all(self.dir.join(folder))?;
        }
        let change = self.host.settle(Vec::new(), Use::default());
        self.change(&change)?;
        self.look();
        self.write(true)
    }

    /// Until nobody tells anything any more.
    fn run(mut self, inbox: &Receiver<News>) {
        let mut last = Instant::now();
        let mut looked = last;
        loop {
            let next = last + self.tick();
            match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(news) => {
                    let change = self.host.settle(news.tenants, news.system);
                    let changed = self.change(&change);
                    self.told("change the groups of a simulated node", changed);
                    self.look();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            let nanos = u64::try_from((now - last).as_nanos()).unwrap_or(u64::MAX);
            last = now;
            let is_look = now - looked >= LOOK;
            self.host.advance(nanos);
            if is_look {
                looked = now;
                self.look();
            }
            let written = self.write(is_look);
            self.told("write the files of a simulated node", written);
        }
    }

    fn tick(&self) -> Duration {
        let groups = u32::try_from(self.host.groups().count()).unwrap_or(u32::MAX);
        TICK_OF_A_GROUP.saturating_mul(groups).clamp(TICK_MIN, TICK_MAX)
    }

    fn told(&mut self, what: &str, result: io::Result<()>) {
        match result {
            Ok(()) => self.is_faulty = false,
            Err(error) if !self.is_faulty => {
                tracing::warn!(dir = %self.dir.display(), %error, "cannot {what}");
                self.is_faulty = true;
            }
            Err(_) => {}
        }
    }

    /// Makes and removes groups.
    fn change(&self, change: &Change) -> io::Result<()> {
        for path in &change.gone {
            for controller in CONTROLLERS {
                match fs::remove_dir_all(self.dir.join(format!("{CGROUPS}/{controller}/{path}"))) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        for (path, settings) in &change.made {
            let parent = path.rsplit_once('/').map(|(parent, _)| file("cpuset", parent, "cpuset.cpus"));
            let inherited = parent.and_then(|parent| fs::read_to_string(self.dir.join(parent)).ok());
            let cpus = inherited.unwrap_or_else(|| self.host.cpus().to_string());
            for (file, text) in self.host.group_files(path, settings, &cpus) {
                self.put(&file, &text)?;
            }
        }
        if !change.made.is_empty() || !change.gone.is_empty() {
            let (path, text) = self.host.burstable_shares();
            self.put(&path, &text)?;
        }
        Ok(())
    }

    /// Reads what the groups are allowed, and shares the CPUs by it.
    fn look(&mut self) {
        let limits = self.host.groups().map(|group| (group.clone(), self.limit(group))).collect();
        self.limits = limits;
        self.host.share(&self.limits);
    }

    /// What cannot be read does not limit; a file that is just being written holds what it held before.
    fn limit(&self, group: &str) -> Limit {
        let read = |controller: &str, name: &str| {
            let text = fs::read_to_string(self.dir.join(file(controller, group, name)));
            text.unwrap_or_else(|_| "-".to_owned()).trim().to_owned()
        };
        let number = |text: String| text.parse::<i64>().ok().filter(|number| *number > 0);
        let known = self.limits.get(group).cloned().unwrap_or_default();
        let mut limit = Limit { shares: known.shares.max(2), ..known };
        let cpus = read("cpuset", "cpuset.cpus");
        if !cpus.is_empty() {
            limit.cpus = cpus.parse::<CpuSet>().ok();
        }
        let (quota, period) = (read("cpu", "cpu.cfs_quota_us"), number(read("cpu", "cpu.cfs_period_us")));
        if !quota.is_empty() {
            let quota = number(quota).zip(period);
            limit.quota_milli = quota.map(|(quota, period)| quota.saturating_mul(1000) / period);
        }
        let shares = read("cpu", "cpu.shares");
        if !shares.is_empty() {
            limit.shares = number(shares).unwrap_or(2);
        }
        let memory = read("memory", "memory.limit_in_bytes");
        if !memory.is_empty() {
            limit.memory = number(memory);
        }
        limit
    }

    fn write(&self, is_all: bool) -> io::Result<()> {
        let mut files = self.host.clocks();
        if is_all {
            files.extend(self.host.gauges());
        }
        for (path, text) in files {
            self.overwrite(&path, &text)?;
        }
        Ok(())
    }

    /// A new file with its folders, or new text in one that is there.
    fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.dir.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)
    }

    /// New text at once, in a file that others have open.
    fn overwrite(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.dir.join(path);
        let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                open()?
            }
            file => file?,
        };
        file.write_all_at(text.as_bytes(), 0)?;
        file.set_len(u64::try_from(text.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests;
