//! News of pods and containers from the kernel, as their groups come and go. Spec: koordlet-observe 3.5.
//!
//! What is on disk is compared with what is known: at start, after the kernel lost events, and when a folder that was
//! missing may have come. So nothing that existed before is overlooked, and no event is told twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use koord_api::qos::KubeQos;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::cgroup::{Cgroups, Dir, Driver, Version};

/// Room for a few dozen events of one read.
const BUFFER_BYTES: usize = 8192;

/// A pod or container that came or went. Ids are those in the names of directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNews {
    PodAdded { pod: String },
    PodDeleted { pod: String },
    ContainerAdded { pod: String, container: String },
    ContainerDeleted { pod: String, container: String },
}

/// Watches the directories of the three QoS classes and of every pod in them.
#[derive(Debug)]
pub struct PodWatch {
    inotify: OwnedFd,
    /// The root of what is watched: on v1 the hierarchy of `cpu`.
    root: PathBuf,
    driver: Driver,
    /// What a watch is for.
    watches: BTreeMap<i32, Watched>,
    pods: BTreeMap<Dir, Pod>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Watched {
    Class(Dir),
    Pod(Dir),
}

#[derive(Debug)]
struct Pod {
    id: String,
    /// None when the directory was gone before it could be watched.
    watch: Option<i32>,
    containers: BTreeSet<String>,
}

/// One event of the kernel.
struct Raw {
    watch: i32,
    flags: ReadFlags,
    name: String,
}

impl PodWatch {
    /// Nothing is watched before the first [`PodWatch::rescan`].
    pub fn new(cgroups: &Cgroups) -> io::Result<PodWatch> {
        let controller = (cgroups.version() == Version::V1).then_some("cpu");
        Ok(PodWatch {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            root: cgroups.group(controller, &Dir::root()),
            driver: cgroups.driver(),
            watches: BTreeMap::new(),
            pods: BTreeMap::new(),
        })
    }

    /// Whether the directory of every class is watched. Kubelet makes them when it starts.
    pub fn is_complete(&self) -> bool {
        self.classes().iter().all(|dir| self.is_watched(dir))
    }

    fn classes(&self) -> [Dir; 3] {
        KubeQos::ALL.map(|qos| self.driver.qos_dir(qos))
    }

    fn is_watched(&self, class: &Dir) -> bool {
        self.watches.values().any(|watched| *watched == Watched::Class(class.clone()))
    }

    /// Looks at what is there, watches it, and tells how it differs from what was known.
    pub fn rescan(&mut self) -> Vec<PodNews> {
        let mut news = Vec::new();
        let mut seen = BTreeSet::new();
        for class in self.classes() {
            // The watch comes first, so that nothing falls between it and the list.
            if let Ok(watch) = self.watch(&class) {
                self.watches.insert(watch, Watched::Class(class.clone()));
            }
            for name in self.list(&class) {
                if let Some(dir) = self.pod_dir(&class, &name) {
                    seen.insert(dir);
                }
            }
        }
        let gone: Vec<Dir> = self.pods.keys().filter(|dir| !seen.contains(*dir)).cloned().collect();
        gone.iter().for_each(|dir| self.pod_gone(dir, &mut news));
        seen.iter().for_each(|dir| self.pod_there(dir, &mut news));
        news
    }

    /// What the kernel told since the last time; never waits.
    pub fn read(&mut self) -> io::Result<Vec<PodNews>> {
        let events = self.read_raw()?;
        Ok(self.news(events))
    }

    fn news(&mut self, events: Vec<Raw>) -> Vec<PodNews> {
        let mut news = Vec::new();
        for raw in events {
            if raw.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                news.extend(self.rescan());
                continue;
            }
            let Some(watched) = self.watches.get(&raw.watch).cloned() else { continue };
            if raw.flags.contains(ReadFlags::IGNORED) {
                self.watches.remove(&raw.watch);
                continue;
            }
            if raw.flags.contains(ReadFlags::ISDIR) {
                self.take(&watched, &raw, &mut news);
            }
        }
        news
    }

    fn take(&mut self, watched: &Watched, raw: &Raw, news: &mut Vec<PodNews>) {
        let is_new = raw.flags.contains(ReadFlags::CREATE);
        match watched {
            Watched::Class(class) => match self.pod_dir(class, &raw.name) {
                Some(dir) if is_new => self.pod_there(&dir, news),
                Some(dir) => self.pod_gone(&dir, news),
                None => {}
            },
            Watched::Pod(dir) => {
                let Ok(container) = self.driver.parse_container_name(&raw.name).map(str::to_owned) else {
                    return;
                };
                let Some(pod) = self.pods.get_mut(dir) else { return };
                let id = pod.id.clone();
                if is_new && pod.containers.insert(container.clone()) {
                    news.push(PodNews::ContainerAdded { pod: id, container });
                } else if !is_new && pod.containers.remove(&container) {
                    news.push(PodNews::ContainerDeleted { pod: id, container });
                }
            }
        }
    }

    /// The directory of a pod, when the name is a pod's.
    fn pod_dir(&self, class: &Dir, name: &str) -> Option<Dir> {
        self.driver.parse_pod_name(name).ok().map(|_| class.child(name))
    }

    fn pod_there(&mut self, dir: &Dir, news: &mut Vec<PodNews>) {
        let Ok(id) = self.driver.parse_pod_name(dir.name()).map(str::to_owned) else { return };
        if !self.pods.contains_key(dir) {
            let watch = self.watch(dir).ok();
            self.watches.extend(watch.map(|watch| (watch, Watched::Pod(dir.clone()))));
            self.pods.insert(dir.clone(), Pod { id: id.clone(), watch, containers: BTreeSet::new() });
            news.push(PodNews::PodAdded { pod: id.clone() });
        }
        let names = self.list(dir);
        let driver = self.driver;
        let there: BTreeSet<String> = names
            .iter()
            .filter_map(|name| driver.parse_container_name(name).ok())
            .map(str::to_owned)
            .collect();
        let Some(pod) = self.pods.get_mut(dir) else { return };
        for container in pod.containers.difference(&there) {
            news.push(PodNews::ContainerDeleted { pod: id.clone(), container: container.clone() });
        }
        for container in there.difference(&pod.containers) {
            news.push(PodNews::ContainerAdded { pod: id.clone(), container: container.clone() });
        }
        pod.containers = there;
    }

    fn pod_gone(&mut self, dir: &Dir, news: &mut Vec<PodNews>) {
        let Some(pod) = self.pods.remove(dir) else { return };
        if let Some(watch) = pod.watch {
            self.watches.remove(&watch);
            // The kernel has dropped it with the directory, as a rule.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
        for container in pod.containers {
            news.push(PodNews::ContainerDeleted { pod: pod.id.clone(), container });
        }
        news.push(PodNews::PodDeleted { pod: pod.id });
    }

    fn watch(&self, dir: &Dir) -> io::Result<i32> {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::ONLYDIR;
        Ok(inotify::add_watch(&self.inotify, self.root.join(dir.as_str()), flags)?)
    }

    /// Names of the directories in a directory; none when it is not there.
    fn list(&self, dir: &Dir) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(dir.as_str())) else { return Vec::new() };
        let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        entries.flatten().filter(is_dir).filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn read_raw(&self) -> io::Result<Vec<Raw>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    events.push(Raw {
                        watch: event.wd(),
                        flags: event.events(),
                        name: name.unwrap_or_default().to_string_lossy().into_owned(),
                    });
                }
                Err(Errno::WOULDBLOCK) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for PodWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl AsRawFd for PodWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    struct Tree {
        folder: tempfile::TempDir,
        watch: PodWatch,
    }

    const BURSTABLE: &str = "kubepods.slice/kubepods-burstable.slice";

    fn tree(version: Version) -> Tree {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::host(folder.path());
        let cgroups = Cgroups::new(&root, version, Driver::Systemd);
        Tree { watch: PodWatch::new(&cgroups).unwrap(), folder }
    }

    impl Tree {
        fn dir(&self, path: &str) -> PathBuf {
            self.watch.root.join(path)
        }

        fn make(&self, path: &str) {
            fs::create_dir_all(self.dir(path)).unwrap();
        }

        fn remove(&self, path: &str) {
            fs::remove_dir(self.dir(path)).unwrap();
        }
    }

    fn pod(pod: &str) -> String {
        format!("{BURSTABLE}/kubepods-burstable-pod{pod}.slice")
    }

    fn added(pod: &str) -> PodNews {
        PodNews::PodAdded { pod: pod.to_owned() }
    }

    fn container(pod: &str, container: &str) -> PodNews {
        PodNews::ContainerAdded { pod: pod.to_owned(), container: container.to_owned() }
    }

    #[test]
    fn pods_come_and_go() {
        for version in [Version::V1, Version::V2] {
            let mut tree = tree(version);
            assert!(tree.watch.rescan().is_empty());
            assert!(!tree.watch.is_complete(), "kubelet has made nothing yet");
            tree.make(&pod("a"));
            tree.make(&format!("{}/cri-containerd-1.scope", pod("a")));
            tree.make("kubepods.slice/kubepods-besteffort.slice");
            // What was there before the watch is found.
            assert_eq!(tree.watch.rescan(), [added("a"), container("a", "1")]);
            assert!(tree.watch.is_complete());
            assert!(tree.watch.rescan().is_empty(), "and told once");

            tree.make(&pod("b_2"));
            assert_eq!(tree.watch.read().unwrap(), [added("b_2")]);
            let scope = format!("{}/cri-containerd-9.scope", pod("b_2"));
            tree.make(&scope);
            tree.make(&format!("{}/other", pod("b_2")));
            fs::write(tree.dir(&format!("{}/tasks", pod("b_2"))), "").unwrap();
            assert_eq!(tree.watch.read().unwrap(), [container("b_2", "9")]);
            tree.remove(&scope);
            let gone = PodNews::ContainerDeleted { pod: "b_2".to_owned(), container: "9".to_owned() };
            assert_eq!(tree.watch.read().unwrap(), [gone]);
            fs::remove_dir_all(tree.dir(&pod("b_2"))).unwrap();
            assert_eq!(tree.watch.read().unwrap(), [PodNews::PodDeleted { pod: "b_2".to_owned() }]);
            assert!(tree.watch.read().unwrap().is_empty());
            assert!(tree.folder.path().exists());
        }
    }

    #[test]
    fn a_pod_of_a_guaranteed_class_lies_in_the_root_of_pods() {
        let mut tree = tree(Version::V2);
        tree.make("kubepods.slice");
        tree.watch.rescan();
        tree.make("kubepods.slice/kubepods-podx.slice");
        tree.make("kubepods.slice/kubepods-burstable.slice");
        assert_eq!(tree.watch.read().unwrap(), [added("x")], "the folder of a class is no pod");
    }

    #[test]
    fn what_the_kernel_did_not_tell_is_found_by_looking() {
        let mut tree = tree(Version::V2);
        tree.make(&pod("a"));
        tree.watch.rescan();
        tree.remove(&pod("a"));
        tree.make(&pod("b"));
        assert_eq!(tree.watch.rescan(), [PodNews::PodDeleted { pod: "a".to_owned() }, added("b")]);
        assert!(tree.watch.read().unwrap().is_empty(), "late events tell nothing new");
    }

    /// koordlet-observe 14 (6). The kernel says so without a watch, and what follows it is told once.
    #[test]
    fn after_events_were_lost_all_is_looked_at() {
        let mut tree = tree(Version::V2);
        tree.make(&pod("a"));
        tree.watch.rescan();
        tree.make(&pod("b"));
        tree.remove(&pod("a"));
        let mut events = tree.watch.read_raw().unwrap();
        events.clear();
        events.push(Raw { watch: -1, flags: ReadFlags::QUEUE_OVERFLOW, name: String::new() });
        let gone = PodNews::PodDeleted { pod: "a".to_owned() };
        assert_eq!(tree.watch.news(events), [gone, added("b")]);
        tree.make(&format!("{}/cri-containerd-1.scope", pod("b")));
        assert_eq!(tree.watch.read().unwrap(), [container("b", "1")], "it is watched from then on");
    }
}
