use std::fs;

use koord_api::qos::KubeQos;

use super::*;
use crate::resource::Resource;

const UID: &str = "a-b";

#[test]
fn pods_and_containers_have_directories() {
    let systemd = Driver::Systemd;
    let cgroupfs = Driver::Cgroupfs;
    for (key, found, want) in [
        (
            "koordlet-observe#13.3.C1",
            systemd.pod_dir(KubeQos::Burstable, UID),
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice",
        ),
        ("koordlet-observe#13.3.C2", cgroupfs.pod_dir(KubeQos::Guaranteed, UID), "kubepods/poda-b"),
        (
            "koordlet-observe#13.3.C8",
            systemd.pod_dir(KubeQos::Guaranteed, UID),
            "kubepods.slice/kubepods-poda_b.slice",
        ),
        (
            "best effort",
            systemd.pod_dir(KubeQos::BestEffort, UID),
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice",
        ),
        ("burstable", cgroupfs.pod_dir(KubeQos::Burstable, UID), "kubepods/burstable/poda-b"),
        ("besteffort", cgroupfs.qos_dir(KubeQos::BestEffort), "kubepods/besteffort"),
        ("root", systemd.qos_dir(KubeQos::Guaranteed), "kubepods.slice"),
    ] {
        assert_eq!(found.as_str(), want, "{key}");
    }
    // koordlet-observe#13.3.C8: a pod that says nothing, of its class or of what it needs.
    let class = koord_api::qos::kube_qos(&k8s_openapi::api::core::v1::Pod::default()).unwrap();
    assert_eq!(systemd.pod_dir(class, UID), systemd.pod_dir(KubeQos::BestEffort, UID));
}

#[test]
fn container_ids_name_their_runtime() {
    let pod = Dir::new("kubepods.slice/p").unwrap();
    for (key, id, systemd, cgroupfs) in [
        ("koordlet-observe#13.3.C3", "containerd://77", "cri-containerd-77.scope", "77"),
        ("docker", "docker://77", "docker-77.scope", "77"),
        ("pouch", "pouch://77", "pouch-77.scope", "77"),
        ("cri-o", "cri-o://77", "crio-77.scope", "77"),
        ("koordlet-observe#13.3.C10", "containerd://a://b", "cri-containerd-a.scope", "a"),
    ] {
        let id: ContainerId = id.parse().unwrap();
        assert_eq!(Driver::Systemd.container_dir(&pod, &id), pod.child(systemd), "{key}");
        assert_eq!(Driver::Cgroupfs.container_dir(&pod, &id), pod.child(cgroupfs), "{key}");
    }
    for (key, id, want) in [
        ("koordlet-observe#13.3.C4", "77", "parse container id 77 failed"),
        ("koordlet-observe#13.3.C4", "rkt://77", "unknown container protocol rkt://77"),
        ("koordlet-enforce#18.194", "crio://abc", "unknown container protocol crio://abc"),
        ("koordlet-enforce#18.194", "abc", "parse container id abc failed"),
    ] {
        assert_eq!(id.parse::<ContainerId>().unwrap_err().to_string(), want, "{key}");
    }
}

#[test]
fn directories_tell_whose_they_are() {
    let pod = |driver: Driver, name: &str| driver.parse_pod_name(name).map(str::to_owned);
    let container = |name: &str| Driver::Systemd.parse_container_name(name).map(str::to_owned);
    // koordlet-observe#13.3.C5
    assert_eq!(pod(Driver::Systemd, "kubepods-podx_y.slice").unwrap(), "x_y");
    assert_eq!(pod(Driver::Systemd, "kubepods-besteffort-podx.slice").unwrap(), "x");
    assert_eq!(
        pod(Driver::Systemd, "system.slice").unwrap_err().to_string(),
        "fail to parse pod id: system.slice"
    );
    // koordlet-observe#13.3.C10
    assert_eq!(pod(Driver::Cgroupfs, "podx.slice").unwrap(), "x.slice");
    assert_eq!(Driver::Cgroupfs.parse_container_name("docker-1.scope").unwrap(), "docker-1.scope");
    // koordlet-observe#13.3.C6
    assert_eq!(container("crio-55").unwrap(), "55");
    assert_eq!(container("crio-55.scope").unwrap(), "55");
    // koordlet-observe#13.3.C7
    assert!(container("libpod-1.scope").is_err());
    // koordlet-observe#13.3.C9
    assert!(container("pouch-1.scope").is_err());
    assert!(container("docker-1").is_err());
    assert_eq!(container("crio-conmon-55.scope").unwrap(), "conmon-55");
}

#[test]
fn paths_alone_tell_the_class() {
    for qos in KubeQos::ALL {
        for driver in [Driver::Systemd, Driver::Cgroupfs] {
            assert_eq!(driver.pod_dir(qos, UID).kube_qos(), qos);
        }
    }
}

#[test]
fn the_driver_is_told_by_what_kubelet_made() {
    for (version, base) in [(Version::V1, "sys/fs/cgroup/cpu"), (Version::V2, "sys/fs/cgroup")] {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        assert_eq!(Driver::detect(&root, version), None);
        fs::create_dir_all(tree.path().join(base).join("kubepods")).unwrap();
        assert_eq!(Driver::detect(&root, version), Some(Driver::Cgroupfs));
        fs::create_dir_all(tree.path().join(base).join("kubepods.slice")).unwrap();
        assert_eq!(Driver::detect(&root, version), Some(Driver::Systemd));
    }
}

#[test]
fn versions_are_told_by_the_file_system() {
    let tree = tempfile::tempdir().unwrap();
    let root = Root::host(tree.path());
    assert!(Version::detect(&root).is_err(), "no cgroup root, and no user namespace");
    fs::create_dir_all(&root.cgroup).unwrap();
    assert_eq!(Version::detect(&root).unwrap(), Version::V1);
}

#[test]
fn files_lie_below_their_controller_on_v1_only() {
    let root = Root::host("/");
    let v1 = Cgroups::new(&root, Version::V1, Driver::Cgroupfs);
    let v2 = Cgroups::new(&root, Version::V2, Driver::Systemd);
    let path = |cgroups: &Cgroups, resource, dir: &Dir| {
        cgroups.path(resource, dir).map(|path| path.display().to_string())
    };
    let be1 = v1.qos_dir(KubeQos::BestEffort);
    let be2 = v2.qos_dir(KubeQos::BestEffort);
    let base = "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice";
    assert_eq!(
        path(&v1, Resource::CpuShares, &be1).unwrap(),
        "/sys/fs/cgroup/cpu/kubepods/besteffort/cpu.shares"
    );
    assert_eq!(path(&v2, Resource::CpuShares, &be2).unwrap(), format!("{base}/cpu.weight"));
    assert_eq!(path(&v2, Resource::CpusetCpus, &be2).unwrap(), format!("{base}/cpuset.cpus"));
    let effective = v2.read_path(Resource::CpusetCpus, &be2).unwrap();
    assert_eq!(effective.display().to_string(), format!("{base}/cpuset.cpus.effective"));
    let missing = path(&v2, Resource::MemoryIdlePageStats, &be2).unwrap_err();
    assert_eq!(missing.to_string(), "memory.idle_page_stats not found in cgroup registry");
}

#[test]
fn what_kubelets_directory_lacks_is_unsupported_for_good() {
    let tree = tempfile::tempdir().unwrap();
    let root = Root::host(tree.path());
    let cgroups = Cgroups::new(&root, Version::V1, Driver::Systemd);
    let kube = cgroups.kube_root();
    let error = cgroups.read(Resource::CpuPressure, &kube, |_| Ok(())).unwrap_err();
    assert_eq!(error.to_string(), "resource is unsupported: cpu.pressure");
    let path = cgroups.path(Resource::CpuPressure, &kube).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
    assert!(cgroups.require(Resource::CpuPressure, &kube).is_ok(), "the directory came later");
    fs::remove_file(&path).unwrap();
    assert!(cgroups.require(Resource::CpuPressure, &kube).is_ok(), "remembered");
    assert!(cgroups.require(Resource::MemoryPressure, &kube).is_err());
}

#[test]
fn cpu_lists() {
    for (list, want) in [("4,1,2", "1-2,4"), ("3-1", ""), ("1,1", "1")] {
        assert_eq!(cpus(list.as_bytes()).unwrap().to_string(), want, "koordlet-observe#13.3.C14 {list}");
    }
    assert!(cpus(b"1,,2").is_err());
    assert_eq!(cpus(b"0-5000").unwrap_err().0, "end 5000 exceed the maximum available CPU count: 4096");
    assert_eq!(cpus(b"0-3\n").unwrap().len(), 4);
    for (list, want) in [("0-3\n", 4), ("\n", 0), ("7", 1), ("0-1,4,6-8\n", 6)] {
        assert_eq!(cpu_count(list.as_bytes()), Ok(want), "{list}");
    }
    for bad in ["3-1", "1,,2", "x", "0-", "1-2-3"] {
        assert!(cpu_count(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn an_anolis_kernel_shows_itself() {
    let tree = tempfile::tempdir().unwrap();
    let root = Root::host(tree.path());
    let cgroups = Cgroups::new(&root, Version::V1, Driver::Systemd);
    assert!(!cgroups.is_anolis());
    let group = root.cgroup.join("memory/system.slice");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("memory.wmark_ratio"), "0").unwrap();
    assert!(cgroups.is_anolis());
}
