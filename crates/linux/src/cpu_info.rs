//! What kind of CPU this is: model, vendor, flags, hyper-threading, turbo. Spec: koordlet-observe 2.6.

use koord_api::cpuset::CpuSet;

use crate::root::Root;
use crate::text;

/// Parts that the host does not tell stay empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    pub model: String,
    pub vendor: String,
    pub hyper_threading: bool,
    pub turbo: bool,
    /// Hexadecimal, as resctrl shows it.
    pub l3_mask: String,
    flags: Vec<String>,
}

impl CpuInfo {
    pub fn read(root: &Root) -> CpuInfo {
        let cpuinfo = text::read(&root.proc.join("cpuinfo")).unwrap_or_default();
        let first =
            |names: &[&str]| fields(&cpuinfo).find(|(name, _)| names.contains(name)).map(|(_, value)| value);
        let info = CpuInfo {
            model: first(&["model name", "Model Name"]).unwrap_or_default().to_owned(),
            vendor: first(&["vendor_id"]).unwrap_or_default().to_owned(),
            flags: first(&["flags"]).unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
            ..CpuInfo::default()
        };
        info.with_switches(root)
    }

    /// The same CPU with what can be switched read anew: hyper-threading, turbo, and resctrl, which may be mounted later.
    /// `/proc/cpuinfo` is long and asks every CPU for its frequency, so it is not read again.
    pub fn with_switches(&self, root: &Root) -> CpuInfo {
        let cpu = root.sys.join("devices/system/cpu");
        let holds =
            |file: &str, value: &str| text::read(&cpu.join(file)).is_ok_and(|text| text.trim() == value);
        let l3_mask = text::read(&root.resctrl().join("info/L3/cbm_mask")).unwrap_or_default();
        CpuInfo {
            // Kernels before 4.20 have no such file; then the first core tells.
            hyper_threading: match text::read(&cpu.join("smt/active")) {
                Ok(active) => active.trim() == "1",
                Err(_) => text::read(&cpu.join("cpu0/topology/thread_siblings_list"))
                    .is_ok_and(|siblings| siblings.trim().parse::<CpuSet>().is_ok_and(|cpus| cpus.len() > 1)),
            },
            turbo: holds("intel_pstate/no_turbo", "0"),
            l3_mask: l3_mask.trim().to_owned(),
            ..self.clone()
        }
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    /// Whether cache and memory bandwidth can be divided.
    pub fn can_allocate(&self) -> bool {
        self.has_flag("cat_l3") && self.has_flag("mba")
    }

    /// Whether cache and memory bandwidth can be watched.
    pub fn can_monitor(&self) -> bool {
        // Differs: upstream asks for the flags of allocation too, which watching does not need.
        ["cqm_llc", "cqm_occup_llc", "cqm_mbm_total", "cqm_mbm_local"].iter().all(|flag| self.has_flag(flag))
    }
}

fn fields(cpuinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    cpuinfo.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(root: &Root, files: &[(&str, &str)]) {
        for (path, content) in files {
            let path = root.proc.parent().unwrap().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    #[test]
    fn an_intel_server() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        put(
            &root,
            &[
                (
                    "proc/cpuinfo",
                    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 106\nmodel name\t: Xeon(R) 8369B: 2.7\n\
                     flags\t\t: fpu cat_l3 mba cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local\n\nprocessor\t: 1\n\
                     vendor_id\t: Other\n",
                ),
                ("sys/devices/system/cpu/smt/active", "1\n"),
                ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
                ("sys/fs/resctrl/info/L3/cbm_mask", "7ff\n"),
            ],
        );
        let info = CpuInfo::read(&root);
        assert_eq!((info.model.as_str(), info.vendor.as_str()), ("Xeon(R) 8369B: 2.7", "GenuineIntel"));
        assert_eq!((info.hyper_threading, info.turbo, info.l3_mask.as_str()), (true, true, "7ff"));
        assert!(info.can_allocate() && info.can_monitor() && info.has_flag("fpu") && !info.has_flag("cat"));
        put(&root, &[("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"), ("proc/cpuinfo", "")]);
        assert_eq!(info.with_switches(&root), CpuInfo { turbo: false, ..info });
    }

    #[test]
    fn an_arm_server_tells_little() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        put(&root, &[("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 100.00\nFeatures\t: fp asimd\n")]);
        let info = CpuInfo::read(&root);
        assert_eq!(info, CpuInfo::default());
        assert!(!info.can_allocate() && !info.can_monitor());
    }
}
