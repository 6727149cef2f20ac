use std::collections::BTreeSet;

use super::*;
use crate::cgroup::Version::{V1, V2};

#[test]
fn every_resource_has_one_row() {
    let names: BTreeSet<&str> = Resource::ALL.iter().map(|resource| resource.name()).collect();
    assert_eq!(names.len(), Resource::ALL.len());
    for (index, resource) in Resource::ALL.iter().enumerate() {
        assert_eq!(resource.index(), index);
        assert_eq!(Resource::from_name(resource.name()), Some(*resource));
        assert!(resource.file(V1).is_some() || resource.file(V2).is_some(), "{}", resource.name());
    }
    assert_eq!(Resource::from_name("cpu.none"), None);
}

/// The table of koordlet-enforce 2.3: name, controller, v2 file, ranges, support.
#[test]
fn the_table_is_the_spec() {
    use Support::{Assumed, CgroupRoot, KubeRoot, Target};
    let rows = [
        ("cpu.stat", Some("cpu"), Some("cpu.stat"), Assumed, Assumed),
        ("cpu.shares", Some("cpu"), Some("cpu.weight"), Assumed, Assumed),
        ("cpu.cfs_quota_us", Some("cpu"), Some("cpu.max"), Assumed, Assumed),
        ("cpu.cfs_period_us", Some("cpu"), Some("cpu.max"), Assumed, Assumed),
        ("cpu.cfs_burst_us", Some("cpu"), Some("cpu.max.burst"), Target, KubeRoot),
        ("cpu.bvt_warp_ns", Some("cpu"), Some("cpu.bvt_warp_ns"), Target, Target),
        ("cpu.idle", Some("cpu"), Some("cpu.idle"), KubeRoot, KubeRoot),
        ("tasks", Some("cpu"), Some("cgroup.threads"), Assumed, Assumed),
        ("cgroup.procs", Some("cpu"), Some("cgroup.procs"), Assumed, Assumed),
        ("cpuset.cpus", Some("cpuset"), Some("cpuset.cpus"), Assumed, Assumed),
        ("cpuacct.usage", Some("cpuacct"), Some("cpu.stat"), Assumed, Assumed),
        ("cpuacct.stat", Some("cpuacct"), Some("cpu.stat"), Assumed, Assumed),
        ("cpu.pressure", Some("cpuacct"), Some("cpu.pressure"), KubeRoot, KubeRoot),
        ("memory.pressure", Some("cpuacct"), Some("memory.pressure"), KubeRoot, KubeRoot),
        ("io.pressure", Some("cpuacct"), Some("io.pressure"), KubeRoot, KubeRoot),
        ("memory.limit_in_bytes", Some("memory"), Some("memory.max"), Assumed, Assumed),
        ("memory.usage_in_bytes", Some("memory"), Some("memory.current"), Assumed, Assumed),
        ("memory.stat", Some("memory"), Some("memory.stat"), Assumed, Assumed),
        ("memory.numa_stat", Some("memory"), Some("memory.numa_stat"), Assumed, Assumed),
        ("memory.min", Some("memory"), Some("memory.min"), KubeRoot, Assumed),
        ("memory.low", Some("memory"), Some("memory.low"), KubeRoot, Assumed),
        ("memory.high", Some("memory"), Some("memory.high"), KubeRoot, Assumed),
        ("memory.wmark_ratio", Some("memory"), Some("memory.wmark_ratio"), KubeRoot, Target),
        ("memory.wmark_scale_factor", Some("memory"), Some("memory.wmark_scale_factor"), KubeRoot, Target),
        ("memory.wmark_min_adj", Some("memory"), Some("memory.wmark_min_adj"), KubeRoot, Target),
        ("memory.priority", Some("memory"), Some("memory.priority"), KubeRoot, Target),
        ("memory.use_priority_oom", Some("memory"), Some("memory.use_priority_oom"), KubeRoot, Target),
        ("memory.oom.group", Some("memory"), Some("memory.oom.group"), KubeRoot, Target),
        ("memory.pagecache_limit.enable", None, Some("memory.pagecache_limit.enable"), KubeRoot, Target),
        ("memory.pagecache_limit.size", None, Some("memory.pagecache_limit.size"), KubeRoot, Target),
        ("memory.pagecache_limit.sync", None, Some("memory.pagecache_limit.sync"), KubeRoot, Target),
        ("memory.idle_page_stats", Some("memory"), None, KubeRoot, KubeRoot),
        ("blkio.throttle.read_iops_device", Some("blkio"), Some("io.max"), KubeRoot, Target),
        ("blkio.throttle.write_iops_device", Some("blkio"), Some("io.max"), KubeRoot, Target),
        ("blkio.throttle.read_bps_device", Some("blkio"), Some("io.max"), KubeRoot, Target),
        ("blkio.throttle.write_bps_device", Some("blkio"), Some("io.max"), KubeRoot, Target),
        ("blkio.cost.weight", Some("blkio"), Some("io.weight"), KubeRoot, Target),
        ("blkio.cost.qos", Some("blkio"), Some("io.cost.qos"), CgroupRoot, CgroupRoot),
        ("blkio.cost.model", Some("blkio"), Some("io.cost.model"), CgroupRoot, CgroupRoot),
        ("net_cls.classid", Some("net_cls"), Some("net_cls.classid"), KubeRoot, KubeRoot),
    ];
    assert_eq!(rows.len(), Resource::ALL.len());
    for (name, v1, v2, support1, support2) in rows {
        let resource = Resource::from_name(name).unwrap();
        assert_eq!(resource.file(V1).and_then(|file| file.controller), v1, "{name}");
        assert_eq!(resource.file(V2).map(|file| file.name), v2, "{name}");
        assert_eq!((resource.support(V1), resource.support(V2)), (support1, support2), "{name}");
    }
}

#[test]
fn ranges_of_the_table() {
    for (name, version, good, bad) in [
        ("cpu.shares", V1, ["2", "262144"], ["1", "262145"]),
        ("cpu.cfs_burst_us", V1, ["0", "100000000"], ["-1", "100000001"]),
        ("cpu.cfs_burst_us", V2, ["0", "max"], ["-1", "x"]),
        ("cpu.bvt_warp_ns", V1, ["-1", "2"], ["-2", "3"]),
        ("cpu.idle", V2, ["0", "1"], ["-1", "2"]),
        ("memory.min", V2, ["0", "max"], ["-1", ""]),
        ("memory.wmark_ratio", V1, ["0", "100"], ["-1", "101"]),
        ("memory.wmark_scale_factor", V1, ["1", "1000"], ["0", "1001"]),
        ("memory.wmark_min_adj", V1, ["-25", "50"], ["-26", "51"]),
        ("memory.priority", V2, ["0", "12"], ["-1", "13"]),
        ("memory.oom.group", V2, ["0", "1"], ["2", "1.0"]),
        ("blkio.throttle.read_bps_device", V1, ["8:0 0", "8:0 5"], ["8:0 -1", "8:0 x"]),
        ("blkio.cost.weight", V1, ["8:0 1", "8:0 100"], ["8:0 0", "8:0 101"]),
        (
            "blkio.cost.qos",
            V1,
            ["8:0 enable=0", "8:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000"],
            [
                "8:0 enable=1 ctrl=user rpct=95 rlat=0 wpct=95 wlat=1",
                "8:0 enable=1 ctrl=user rpct=x rlat=1 wpct=1 wlat=1",
            ],
        ),
        (
            "blkio.cost.model",
            V1,
            ["8:0 ctrl=auto", "8:0 ctrl=user rbps=1 rseqiops=3 rrandiops=5 wbps=2 wseqiops=4 wrandiops=6"],
            [
                "8:0 ctrl=user rbps=1 rseqiops=0 rrandiops=0 wbps=0 wseqiops=0 wrandiops=0",
                "8:0 ctrl=user rbps=-1 rseqiops=3 rrandiops=5 wbps=2 wseqiops=4 wrandiops=6",
            ],
        ),
    ] {
        let resource = Resource::from_name(name).unwrap();
        for value in good {
            assert_eq!(validate(resource, version, value), Ok(()), "{name} {value}");
        }
        for value in bad {
            assert!(validate(resource, version, value).is_err(), "{name} {value}");
        }
    }
    let text = |value| validate(Resource::CpuIdle, V1, value).unwrap_err().to_string();
    assert_eq!(text(""), "value is nil");
    assert_eq!(text("7"), "value 7 is not in [min:0, max:1]");
    assert!(text("x").starts_with("value x is not an integer"));
}

#[test]
fn cpu_lists_are_checked() {
    // koordlet-enforce#18.191
    let check = |list| validate(Resource::CpusetCpus, V1, list);
    assert_eq!(check("0,0,1"), Ok(()));
    assert_eq!(check(""), Ok(()));
    for list in ["0-3,", " 0-3", "3-1", "a", "0-3-5"] {
        let fault = check(list).unwrap_err().to_string();
        assert_eq!(fault, format!("value {list} is not valid cpuset string"));
    }
}

#[test]
fn class_ids_are_checked() {
    // koordlet-enforce#18.192
    for value in ["65538", "0x10002", "0x1000a", "4294967295", "0"] {
        assert_eq!(validate(Resource::NetClassId, V1, value), Ok(()), "{value}");
    }
    for value in ["-1", "4294967296", "0xg", ""] {
        assert!(validate(Resource::NetClassId, V1, value).is_err(), "{value}");
    }
}

#[test]
fn conversions() {
    // koordlet-enforce#18.77
    for (shares, want) in [(2, 1), (102, 4), (1024, 39), (2048, 79), (262_144, 10_000)] {
        assert_eq!(weight_of_shares(shares), Ok(want), "{shares}");
    }
    // koordlet-enforce#18.78 koordlet-observe#13.2.B17 koordlet-observe#13.2.B37
    for (weight, want) in [(1, 2), (39, 998), (100, 2597), (10_000, 262_144), (2, 28), (50, 1286)] {
        assert_eq!(shares_of_weight(weight), Ok(want), "{weight}");
    }
}

#[test]
fn conversions_refuse_what_is_out_of_range() {
    // koordlet-enforce#18.188 koordlet-observe#13.2.B37
    let text = weight_of_shares(1).unwrap_err().to_string();
    assert_eq!(text, "invalid cpu.weight value, err: value 1 is not in [min:2, max:262144]");
    assert!(weight_of_shares(262_145).is_err());
    assert!(encode(Resource::CpuShares, V2, "").is_err());
    assert!(encode(Resource::CpuShares, V2, "max").is_err());
    let text = shares_of_weight(0).unwrap_err().to_string();
    assert_eq!(text, "invalid cpu.weight value, err: value 0 is not in [min:1, max:10000]");
    assert!(shares_of_weight(10_001).is_err());
}

#[test]
fn values_are_written_in_the_language_of_the_version() {
    for (resource, value, v1, v2) in [
        (Resource::CpuShares, "1024", "1024", "39"),
        // koordlet-enforce#18.79
        (Resource::CfsQuotaUs, "-1", "-1", "max"),
        (Resource::CfsQuotaUs, "50000", "50000", "50000"),
        (Resource::MemoryLimit, "-1", "-1", "max"),
        (Resource::MemoryLimit, "4096", "4096", "4096"),
        (Resource::ReadIops, "253:16 100", "253:16 100", "253:16 riops=100"),
        (Resource::WriteBps, "253:16 0", "253:16 0", "253:16 wbps=max"),
        (Resource::IoWeight, "253:16 60", "253:16 60", "253:16 60"),
        (Resource::CpusetCpus, "0-3", "0-3", "0-3"),
    ] {
        assert_eq!(encode(resource, V1, value).unwrap(), v1);
        assert_eq!(encode(resource, V2, value).unwrap(), v2);
    }
}

#[test]
fn what_a_file_already_says_is_not_written() {
    for (resource, version, value, content, same) in [
        // koordlet-enforce#18.80
        (Resource::CfsQuotaUs, V2, "50000", "50000 100000\n", true),
        (Resource::CfsQuotaUs, V2, "max", "max 100000\n", true),
        (Resource::CfsQuotaUs, V2, "60000", "50000 100000\n", false),
        (Resource::CfsQuotaUs, V1, "-1", "-1\n", true),
        // koordlet-enforce#18.234
        (Resource::CpusetCpus, V1, "0-2", "0,1,2\n", true),
        (Resource::CpusetCpus, V1, "0-2", "\n", false),
        (Resource::MemoryHigh, V2, "9223372036854775807", "max\n", true),
        (Resource::MemoryHigh, V1, "9223372036854775807", "9223372036854771712\n", true),
        (Resource::MemoryLimit, V1, "-1", "9223372036854771712\n", true),
        (Resource::MemoryMin, V2, "4", "0\n", false),
        (Resource::CpuShares, V1, "100", "50\n", false),
        (Resource::MemoryMin, V2, "4", "x\n", false),
        // The compare rule of devices, koordlet-enforce 3.4.
        (Resource::ReadIops, V1, "8:0 0", "8:16 5\n", true),
        (Resource::ReadIops, V1, "8:0 0", "8:0 5\n", false),
        (Resource::ReadIops, V1, "8:0 5", "8:0 5\n8:16 7\n", true),
        (Resource::ReadIops, V1, "8:0 5", "8:16 5\n", false),
        (Resource::ReadIops, V2, "8:0 riops=5", "8:0 rbps=max wbps=max riops=5 wiops=max\n", true),
        (Resource::ReadIops, V2, "8:0 riops=max", "\n", true),
        (Resource::ReadIops, V2, "8:0 riops=max", "8:0 rbps=max wbps=max riops=5 wiops=max\n", false),
        (Resource::IoWeight, V2, "8:0 60", "default 100\n8:0 60\n", true),
        (Resource::IoWeight, V2, "8:0 60", "default 100\n", false),
        (Resource::IoWeight, V2, "8:0 100", "default 100\n", true),
        (Resource::IoWeight, V2, "8:0 100", "default 100\n8:0 60\n", false),
        (
            Resource::IoCostQos,
            V1,
            "8:0 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000",
            "8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=10000.00\n",
            true,
        ),
        (Resource::IoCostQos, V1, "8:0 enable=0", "8:0 enable=1 ctrl=user\n", false),
        (Resource::IoWeight, V2, "8:0 default", "default 50\n8:16 60\n", true),
        (Resource::IoWeight, V2, "8:0 default", "default 50\n8:0 50\n", false),
        (Resource::IoCostModel, V1, "8:0 ctrl=auto", "8:0 ctrl=auto model=linear rbps=1\n", true),
    ] {
        let current = current_value(resource, version, content);
        assert_eq!(is_same(resource, value, current), same, "{} {value} {content}", resource.name());
    }
}

#[test]
fn growing_values_are_written_parents_first() {
    let grows = |resource, version, value, current| raised(resource, version, value, current).unwrap();
    assert_eq!(grows(Resource::MemoryMin, V2, "4", "0"), Some("4".into()));
    assert_eq!(grows(Resource::MemoryMin, V2, "0", "4"), None);
    assert_eq!(grows(Resource::CfsQuotaUs, V1, "-1", "100000"), Some("-1".into()));
    assert_eq!(grows(Resource::CfsQuotaUs, V2, "200000", "max"), None);
    assert_eq!(grows(Resource::CpusetCpus, V1, "2-5", "0-3"), Some("0-5".into()));
    assert_eq!(grows(Resource::CpusetCpus, V1, "2-3", "0-3"), None);
    assert_eq!(grows(Resource::CpusetCpus, V1, "2-3", ""), Some("2-3".into()));
    assert_eq!(grows(Resource::CpusetCpus, V2, "2-3", ""), None);
    let fault = raised(Resource::MemoryMin, V2, "4", "x").unwrap_err().to_string();
    assert_eq!(fault, "memory.min value is not int64: x");
    assert!(raised(Resource::CpusetCpus, V1, "0", "x").is_err());
}

/// What gives a disk's line back.
#[test]
fn lines_of_disks_are_told_in_the_language_of_v1() {
    let disk = Device { major: 8, minor: 0 };
    let max = "8:16 rbps=1 wbps=2 riops=3 wiops=4\n8:0 rbps=max wbps=7 riops=max wiops=max\n";
    for (resource, content, want) in [
        (Resource::ReadIops, "8:16 5\n", "8:0 0"),
        (Resource::ReadIops, "8:16 5\n8:0 7\n", "8:0 7"),
        (Resource::WriteBps, max, "8:0 7"),
        (Resource::ReadBps, max, "8:0 0"),
        (Resource::IoWeight, "default 100\n8:0 60\n", "8:0 60"),
        (Resource::IoWeight, "default 50\n8:16 60\n", "8:0 default"),
        (Resource::IoCostQos, "", "8:0 enable=0"),
        (Resource::IoCostQos, "8:0 enable=1 ctrl=user\n", "8:0 enable=1 ctrl=user"),
        (Resource::IoCostModel, "", "8:0 ctrl=auto"),
    ] {
        assert_eq!(value_of_device(resource, content, disk), want, "{}", resource.name());
    }
}
