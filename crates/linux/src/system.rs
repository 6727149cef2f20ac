//! Files outside cgroups that strategies set: sysctls, scheduler features, OOM scores. Spec: koordlet-enforce 2.6.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::{Error, Malformed};
use crate::process::Process;
use crate::root::Root;

/// A file of the whole node, or of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SystemFile {
    MinFreeKbytes,
    WatermarkScaleFactor,
    ReapBackground,
    PagecacheLimitEnabled,
    SchedGroupIdentityEnabled,
    SchedIdleSaverWmark,
    SchedCore,
    SchedFeatures,
    OomScoreAdj(Process),
}

impl SystemFile {
    /// Those of the whole node.
    pub const OF_NODE: [SystemFile; 8] = [
        SystemFile::MinFreeKbytes,
        SystemFile::WatermarkScaleFactor,
        SystemFile::ReapBackground,
        SystemFile::PagecacheLimitEnabled,
        SystemFile::SchedGroupIdentityEnabled,
        SystemFile::SchedIdleSaverWmark,
        SystemFile::SchedCore,
        SystemFile::SchedFeatures,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SystemFile::MinFreeKbytes => "min_free_kbytes",
            SystemFile::WatermarkScaleFactor => "watermark_scale_factor",
            SystemFile::ReapBackground => "reap_background",
            SystemFile::PagecacheLimitEnabled => "pagecache_limit enabled",
            SystemFile::SchedGroupIdentityEnabled => "sched_group_identity_enabled",
            SystemFile::SchedIdleSaverWmark => "sched_idle_saver_wmark",
            SystemFile::SchedCore => "sched_core",
            SystemFile::SchedFeatures => "sched_features",
            SystemFile::OomScoreAdj(_) => "oom_score_adj",
        }
    }

    /// A file of the whole node by its name.
    pub fn from_name(name: &str) -> Option<SystemFile> {
        SystemFile::OF_NODE.into_iter().find(|file| file.name() == name)
    }

    /// Error when it belonged to a process that has ended, though another may have its id now.
    pub(crate) fn require(self, root: &Root) -> Result<(), Error> {
        match self {
            SystemFile::OomScoreAdj(process) if !process.is_there(root) => {
                Err(Error::Missing { path: self.path(root) })
            }
            _ => Ok(()),
        }
    }

    pub fn path(self, root: &Root) -> PathBuf {
        match self {
            SystemFile::MinFreeKbytes | SystemFile::WatermarkScaleFactor => {
                root.proc.join("sys/vm").join(self.name())
            }
            SystemFile::ReapBackground => root.sys.join("kernel/mm/memcg_reaper/reap_background"),
            SystemFile::PagecacheLimitEnabled => root.sys.join("kernel/mm/pagecache_limit/enabled"),
            SystemFile::SchedGroupIdentityEnabled
            | SystemFile::SchedIdleSaverWmark
            | SystemFile::SchedCore => root.proc.join("sys/kernel").join(self.name()),
            SystemFile::SchedFeatures => root.sys.join("kernel/debug/sched_features"),
            SystemFile::OomScoreAdj(process) => crate::process::dir(root, process.pid).join("oom_score_adj"),
        }
    }

    /// Error when the kernel would refuse the value.
    pub fn validate(self, value: &str) -> Result<(), Malformed> {
        let (min, max) = match self {
            SystemFile::MinFreeKbytes => (10_240, 10_485_760),
            SystemFile::WatermarkScaleFactor => (10, 400),
            SystemFile::ReapBackground
            | SystemFile::PagecacheLimitEnabled
            | SystemFile::SchedGroupIdentityEnabled
            | SystemFile::SchedCore => (0, 1),
            SystemFile::OomScoreAdj(_) => (-1000, 1000),
            SystemFile::SchedIdleSaverWmark | SystemFile::SchedFeatures => return Ok(()),
        };
        crate::resource::in_range(value, min, max)
    }
}

/// Which scheduler features are on: `GENTLE_FAIR_SLEEPERS NO_NEXT_BUDDY`. One that is both is an error.
pub fn sched_features(content: &str) -> Result<BTreeMap<&str, bool>, Malformed> {
    let mut features = BTreeMap::new();
    for word in content.split_whitespace() {
        let (name, is_on) = word.strip_prefix("NO_").map_or((word, true), |name| (name, false));
        if features.insert(name, is_on).is_some_and(|before| before != is_on) {
            return Err(Malformed(format!("scheduler feature {name} is both on and off")));
        }
    }
    Ok(features)
}

/// The word that switches a feature.
pub fn sched_feature_word(name: &str, is_on: bool) -> String {
    if is_on { name.to_owned() } else { format!("NO_{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_ranges() {
        use SystemFile::*;
        let root = Root::host("/");
        for (file, path, good, bad) in [
            (MinFreeKbytes, "/proc/sys/vm/min_free_kbytes", "10240", "10239"),
            (MinFreeKbytes, "/proc/sys/vm/min_free_kbytes", "5368709", "16106127"),
            (MinFreeKbytes, "/proc/sys/vm/min_free_kbytes", "10485760", "9437"),
            (WatermarkScaleFactor, "/proc/sys/vm/watermark_scale_factor", "400", "401"),
            (ReapBackground, "/sys/kernel/mm/memcg_reaper/reap_background", "1", "2"),
            (PagecacheLimitEnabled, "/sys/kernel/mm/pagecache_limit/enabled", "0", "-1"),
            (SchedGroupIdentityEnabled, "/proc/sys/kernel/sched_group_identity_enabled", "1", "x"),
            (SchedCore, "/proc/sys/kernel/sched_core", "1", ""),
            (OomScoreAdj(Process { pid: 7, start_ticks: 1 }), "/proc/7/oom_score_adj", "-1000", "1001"),
        ] {
            assert_eq!(file.path(&root).to_str(), Some(path));
            assert_eq!(file.validate(good), Ok(()), "{path}");
            assert!(file.validate(bad).is_err(), "{path}");
        }
        assert!(SystemFile::OF_NODE.into_iter().all(|file| SystemFile::from_name(file.name()) == Some(file)));
        assert_eq!(SystemFile::from_name("oom_score_adj"), None);
        assert_eq!(SchedIdleSaverWmark.validate("-5"), Ok(()));
        assert_eq!(SchedFeatures.path(&root).to_str(), Some("/sys/kernel/debug/sched_features"));
    }

    #[test]
    fn features_are_words() {
        let features = sched_features("GENTLE_FAIR_SLEEPERS NO_NEXT_BUDDY\n").unwrap();
        assert_eq!(features, [("GENTLE_FAIR_SLEEPERS", true), ("NEXT_BUDDY", false)].into());
        assert!(sched_features("X NO_X").is_err());
        assert_eq!(
            (sched_feature_word("X", true), sched_feature_word("X", false)),
            ("X".into(), "NO_X".into())
        );
    }
}
