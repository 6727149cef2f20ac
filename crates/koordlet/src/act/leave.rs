//! What features leave on the node that is no value of a file, and how another run takes it away when the feature is off.
//!
//! Values of files are in the ledger of `apply/undo.rs`. For what is here a mark below `/var/run` says that there may be
//! something of ours, so that what others made is not taken away.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use koord_linux::cgroup::Cgroups;
use koord_linux::idle_pages::Kidled;
use koord_linux::resctrl::{Mounted, Resctrl};
use koord_linux::root::Root;

use super::{core_sched, host_programs, tc, terway};
use crate::audit::Subject;
use crate::decide::hooks::pod_resctrl::GROUP_PREFIX;
use crate::decide::resctrl::GROUPS;
use crate::metrics::{KoordletMetrics, Metric};
use crate::records::{GIVE_BACK, Records};

/// Something that cannot be told to be ours by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trace {
    Cookies,
    ResctrlClasses,
    ResctrlMount,
    TerwayFiles,
}

impl Trace {
    fn mark(self, root: &Root) -> PathBuf {
        let name = match self {
            Trace::Cookies => "gave-cookies",
            Trace::ResctrlClasses => "made-resctrl-classes",
            Trace::ResctrlMount => "mounted-resctrl",
            Trace::TerwayFiles => "wrote-terway-files",
        };
        root.state.join(name)
    }

    /// Says that there may be something from now on. To be called before there is.
    pub(super) fn leave(self, root: &Root) {
        let mark = self.mark(root);
        if mark.exists() {
            return;
        }
        let made = mark.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&mark, ""));
        if let Err(error) = made {
            let (error, mark) = (&error as &dyn std::error::Error, mark.display());
            tracing::warn!(error, %mark, "what a feature made cannot be taken away by another run");
        }
    }

    fn is_left(self, root: &Root) -> bool {
        self.mark(root).exists()
    }

    /// Says that there is nothing any more.
    pub(super) fn forget(self, root: &Root) {
        // Found again, it costs the next run another look.
        let _ = fs::remove_file(self.mark(root));
    }
}

/// Where to look.
pub struct Leftovers<'a> {
    pub root: &'a Root,
    pub cgroups: &'a Cgroups,
    pub resctrl: &'a Resctrl,
    pub terway_dir: &'a Path,
    pub is_host_mode: bool,
    pub records: &'a Records,
    /// Why it goes, for those who read the log.
    pub why: &'static str,
}

impl Leftovers<'_> {
    /// Takes away what features left that are off, and says how many things could not be.
    pub fn take_away(&self, is_on: impl Fn(&str) -> bool) -> usize {
        let mut stay = 0;
        if !is_on("TCNetworkQoS") {
            match tc::give_back(self.root, host_programs(self.root, self.is_host_mode)) {
                Some(true) => self.record("traffic classes"),
                Some(false) => {}
                None => stay += 1,
            }
        }
        if !is_on("CoreSched") {
            let cookies = || {
                match core_sched::give_back(self.cgroups) {
                    0 => {}
                    processes => self.record(&format!("core-scheduling cookies of {processes} processes")),
                }
                0
            };
            self.of(Trace::Cookies, cookies, &mut stay);
        }
        if !is_on("RdtResctrl") {
            let classes = || self.remove_groups(|name| GROUPS.iter().any(|class| class.as_str() == name));
            self.of(Trace::ResctrlClasses, classes, &mut stay);
        }
        if !is_on("Resctrl") {
            // Their names say whose they are.
            stay += self.remove_groups(|name| name.starts_with(GROUP_PREFIX));
        }
        if !is_on("RdtResctrl") && !is_on("Resctrl") {
            stay += self.unmount_resctrl();
        }
        // Without the folder nobody knows what is in it: another run may have it.
        if !is_on("TerwayQoS") && self.terway_dir.is_dir() {
            let files = || match terway::give_back(self.terway_dir) {
                Ok(0) => 0,
                Ok(count) => {
                    self.record(&format!("{count} files of {}", self.terway_dir.display()));
                    0
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "terway's files stay");
                    1
                }
            };
            self.of(Trace::TerwayFiles, files, &mut stay);
        }
        if !is_on("ColdPageCollector") {
            match Kidled::give_back(self.root) {
                Ok(true) => self.record("the switches of kidled"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "kidled keeps running");
                    stay += 1;
                }
            }
        }
        stay
    }

    /// What was taken away is told in the log, and in the audit log.
    fn record(&self, what: &str) {
        tracing::info!(what, why = self.why, "taken away");
        self.records.record(3, Subject::Node, GIVE_BACK, format!("take away {what}; {}", self.why));
    }

    /// Where there is a mark, which stays as long as something does.
    fn of(&self, trace: Trace, take_away: impl FnOnce() -> usize, stay: &mut usize) {
        if !trace.is_left(self.root) {
            return;
        }
        tracing::info!(?trace, "taking away what an earlier run left");
        match take_away() {
            0 => trace.forget(self.root),
            some => *stay += some,
        }
    }

    /// Takes our mount away, unless somebody else has come to use it. Then the mark stays for the day when nobody does.
    fn unmount_resctrl(&self) -> usize {
        let trace = Trace::ResctrlMount;
        if !trace.is_left(self.root) {
            return 0;
        }
        let mut groups = self.resctrl.groups().unwrap_or_default();
        groups.extend(self.resctrl.counting_groups().unwrap_or_default());
        if !groups.is_empty() {
            tracing::info!(?groups, "resctrl stays mounted, for there are groups in it");
            return 0;
        }
        // It may have ended with the mount namespace of an earlier run, or somebody took it away.
        if self.resctrl.is_usable() {
            if let Err(error) = self.resctrl.unmount() {
                tracing::warn!(error = &error as &dyn std::error::Error, "resctrl stays mounted");
                return 1;
            }
            self.record("the mount of resctrl");
        }
        trace.forget(self.root);
        0
    }

    fn remove_groups(&self, is_ours: impl Fn(&str) -> bool) -> usize {
        let groups = self.resctrl.groups().unwrap_or_default();
        let stays = |group: &&String| match self.resctrl.remove(group) {
            Ok(()) => {
                self.record(&format!("resctrl group {group}"));
                false
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, %group, "a resctrl group stays");
                true
            }
        };
        groups.iter().filter(|name| is_ours(name)).filter(stays).count()
    }
}

/// Marks a mount that was made just now. Only then is it known to be ours: a mark before it, left by a run that was
/// killed, would say so of the next one's.
pub(super) fn note_mount(root: &Root, records: &Records, metrics: &KoordletMetrics, mounted: Mounted) {
    if mounted == Mounted::Now {
        Trace::ResctrlMount.leave(root);
        records.record(
            3,
            Subject::Node,
            "UpdateResctrl",
            "mount resctrl; a class or a pod wants a share".to_owned(),
        );
        metrics.count(Metric::NodeChange, &["resctrl-mount", "success"]);
    }
}

/// Removes a file that may not be there, and says whether it was.
pub(super) fn remove_file(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        removed => removed.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use koord_linux::cgroup::{Driver, Version};

    use super::*;
    use crate::audit::{Answer, Auditor, Query};

    fn take_away(root: &Root, is_on: impl Fn(&str) -> bool) -> usize {
        take_away_telling(root, is_on, &Records::only(Auditor::off()))
    }

    fn take_away_telling(root: &Root, is_on: impl Fn(&str) -> bool, records: &Records) -> usize {
        let leftovers = Leftovers {
            root,
            cgroups: &Cgroups::new(root, Version::V2, Driver::Cgroupfs),
            resctrl: &Resctrl::new(root),
            terway_dir: &root.var_run.join("terway"),
            is_host_mode: true,
            records,
            why: "nobody wants it",
        };
        leftovers.take_away(is_on)
    }

    /// A directory that looks like resctrl is no mount and stays, which shows that it was tried.
    #[test]
    fn the_mount_of_resctrl_is_ours_or_not() {
        let (ours, found) = (Some(Mounted::Now), Some(Mounted::Before));
        let theirs = "sys/fs/resctrl/theirs/schemata";
        let counted = "sys/fs/resctrl/mon_groups/theirs/tasks";
        let mask = "sys/fs/resctrl/info/L3/cbm_mask";
        for (what, mounted, files, on, is_tried, is_marked) in [
            ("ours", ours, &[mask][..], "", true, true),
            ("ours, of classes", ours, &[mask], "RdtResctrl", false, true),
            ("ours, of pods", ours, &[mask], "Resctrl", false, true),
            ("there before", found, &[mask], "", false, false),
            ("never looked for", None, &[mask], "", false, false),
            ("used by others", ours, &[mask, theirs], "", false, true),
            ("counted by others", ours, &[mask, counted], "", false, true),
            ("gone by itself", ours, &[], "", false, false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::host(dir.path());
            for file in files {
                let file = dir.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, "7ff").unwrap();
            }
            let (records, metrics) = (Records::only(Auditor::off()), KoordletMetrics::new("n1"));
            mounted.into_iter().for_each(|mounted| note_mount(&root, &records, &metrics, mounted));
            assert_eq!(take_away(&root, |gate| gate == on), usize::from(is_tried), "{what}");
            assert_eq!(Trace::ResctrlMount.is_left(&root), is_marked, "{what}");
        }
    }

    /// What is taken away has a record; what is not there, or cannot be, has none.
    #[test]
    fn only_what_was_taken_away_is_told() {
        let terway_files: &[&str] = &["pod.json", "global_bps_config"];
        for (name, files, told, stays) in [
            ("both", terway_files, Some("take away 2 files of "), false),
            ("one", &terway_files[..1], Some("take away 1 files of "), false),
            ("others'", &["notes"], None, false),
            ("no folder", &[], None, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::host(dir.path());
            let terway = root.var_run.join("terway");
            for file in files {
                fs::create_dir_all(&terway).unwrap();
                fs::write(terway.join(file), "{}").unwrap();
            }
            let all = [Trace::TerwayFiles, Trace::Cookies, Trace::ResctrlMount, Trace::ResctrlClasses];
            all.into_iter().for_each(|trace| trace.leave(&root));
            let records = Records::only(Auditor::of_test(dir.path()));
            assert_eq!(take_away_telling(&root, |_| false, &records), 0, "{name}");
            let Answer::Page { events, .. } = records.auditor().query(&Query::default(), Instant::now())
            else {
                panic!("{name}")
            };
            let messages: Vec<&str> = events.iter().map(|event| &*event.message).collect();
            assert_eq!(messages.len(), usize::from(told.is_some()), "{name}: {messages:?}");
            assert!(messages.iter().all(|message| {
                told.is_some_and(|told| message.starts_with(told)) && message.ends_with("; nobody wants it")
            }));
            let left = all.into_iter().filter(|trace| trace.is_left(&root));
            let want = if stays { vec![Trace::TerwayFiles] } else { Vec::new() };
            assert_eq!(left.collect::<Vec<Trace>>(), want, "{name}");
        }
    }

    /// Each thing with the gate that keeps it; what has a mark is somebody else's without it. A plain directory is no
    /// group of resctrl and stays, which shows that it was tried.
    #[test]
    fn features_that_are_off_leave_nothing() {
        for (gate, file, trace) in [
            ("RdtResctrl", "sys/fs/resctrl/BE/schemata", Some(Trace::ResctrlClasses)),
            ("Resctrl", "sys/fs/resctrl/koordlet-u1/schemata", None),
            ("TerwayQoS", "var/run/terway/pod.json", Some(Trace::TerwayFiles)),
        ] {
            for (is_marked, is_on) in [(true, true), (true, false), (false, false)] {
                let dir = tempfile::tempdir().unwrap();
                let root = Root::host(dir.path());
                let file = dir.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, "{}").unwrap();
                if let Some(trace) = trace.filter(|_| is_marked) {
                    trace.leave(&root);
                    trace.leave(&root);
                }
                let stay = take_away(&root, |name| name == gate && is_on);
                let is_tried = stay > 0 || !file.exists();
                assert_eq!(is_tried, !is_on && (is_marked || trace.is_none()), "{gate} {is_marked} {is_on}");
                let is_marked = trace.is_some_and(|trace| trace.is_left(&root));
                assert_eq!(is_marked && is_tried, stay > 0 && trace.is_some(), "what stays is tried again");
            }
        }
    }
}
