use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::PodBlkioQos;
use koord_api::crd::node_slo::BlockType;
use koord_api::gojson;
use koord_api::slo::defaults;

use super::*;
use crate::decide::sketch::pod;

fn disks() -> Disks {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
    Disks {
        disks: [("/dev/vda", 0), ("/dev/vdb", 16)]
            .map(|(name, minor)| (name.to_string(), Disk { major: 253, minor }))
            .into(),
        partitions: map(&[("/dev/vdb1", "/dev/vdb")]),
        volume_groups: map(&[("vg0", "/dev/vdb")]),
        logical_volumes: map(&[("/dev/mapper/vg0-lv", "vg0")]),
        mounts: map(&[("/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/v1/mount", "/dev/mapper/vg0-lv")]),
        claims: BTreeMap::new(),
        kubelet_dir: "/var/lib/kubelet".to_string(),
    }
}

fn block(block_type: BlockType, name: &str, config: &str) -> BlockCfg {
    let io_cfg = Some(gojson::from_str(config).unwrap());
    BlockCfg { name: name.into(), block_type: Some(block_type), io_cfg }
}

fn device(name: &str, config: &str) -> BlockCfg {
    block(BlockType::Device, name, config)
}

fn files(contents: &[(File, &str)]) -> Present {
    let mut present: Present = GROUP_FILES.into_iter().map(|file| (file, String::new())).collect();
    present.extend(contents.iter().map(|(file, text)| (*file, text.to_string())));
    present
}

fn texts(plan: &Plan) -> Vec<String> {
    plan.wishes.iter().map(|wish| format!("{} {}", wish.file.name(), wish.value)).collect()
}

fn best_effort(enable: bool, blocks: Vec<BlockCfg>, present: Present) -> Plan {
    let mut strategy = defaults::qos();
    strategy.be_class.as_mut().unwrap().blkio_qos = Some(BlkioQos { enable: Some(enable), blocks });
    let groups = [(Place::Kube(KubeQos::BestEffort), present)].into();
    plan(&strategy, &[], &disks(), &Files { groups, ..Files::default() })
}

fn root(blocks: Vec<BlockCfg>, cost_qos: &str) -> Plan {
    let mut strategy = defaults::qos();
    strategy.cgroup_root.as_mut().unwrap().blkio_qos = Some(BlkioQos { enable: Some(true), blocks });
    let groups = [(Place::CgroupRoot, files(&[(File::BlkioCostQos, cost_qos)]))].into();
    plan(&strategy, &[], &disks(), &Files { groups, ..Files::default() })
}

fn of_pod(annotation: &str, present: Present) -> Plan {
    let pods = [pod("p").qos("LS").csi_volume("v1").annotated(PodBlkioQos::KEY, annotation).read()];
    let groups = [(pods[0].place(), present)].into();
    plan(&defaults::qos(), &pods, &disks(), &Files { groups, ..Files::default() })
}

#[test]
fn groups() {
    const READ: &str = "blkio.throttle.read_iops_device";
    const WEIGHT: &str = "blkio.cost.weight";
    let held =
        || files(&[(File::BlkioReadIops, "253:16 100\n"), (File::BlkioWeight, "default 100\n253:16 60\n")]);
    let only_read = || files(&[(File::BlkioReadIops, "253:16 100\n")]);
    let partition = device("/dev/vdb1", r#"{"readIOPS":100,"ioWeightPercent":60}"#);
    let unknown = vec![device("/dev/vdb", "{}"), device("/dev/zzz", "{}")];
    let odd = device("/dev/vda", r#"{"readBPS":5,"ioWeightPercent":0}"#);
    let volume = r#"{"blocks":[{"name":"v1","type":"podvolume","ioCfg":{"writeBPS":1048576}}]}"#;
    let write = |file: &str, value: &str| format!("{file} {value}");
    for (key, plan, want) in [
        (
            "koordlet-enforce#18.218",
            best_effort(true, vec![partition], files(&[])),
            vec![write(READ, "253:16 100"), write(WEIGHT, "253:16 60")],
        ),
        (
            "koordlet-enforce#18.219",
            best_effort(false, Vec::new(), held()),
            vec![write(READ, "253:16 0"), write(WEIGHT, "253:16 100")],
        ),
        ("koordlet-enforce#18.220", best_effort(true, unknown, files(&[])), vec![]),
        (
            "koordlet-enforce#18.225",
            of_pod(volume, files(&[])),
            vec![write("blkio.throttle.write_bps_device", "253:16 1048576"), write(WEIGHT, "253:16 100")],
        ),
        (
            "koordlet-enforce#18.226",
            of_pod("", only_read()),
            vec![write(READ, "253:16 0"), write(WEIGHT, "253:16 100")],
        ),
        (
            "koordlet-enforce#18.227",
            best_effort(true, vec![odd], files(&[])),
            vec![write("blkio.throttle.read_bps_device", "253:0 5")],
        ),
        ("a strange line", best_effort(false, Vec::new(), files(&[(File::BlkioWeight, "a b c")])), vec![]),
    ] {
        assert_eq!(texts(&plan), want, "{key} {:?}", plan.problems);
    }
}

/// A volume of a claim is mounted under the name of what is bound to the claim.
#[test]
fn volumes_of_claims() {
    let text = r#"{"blocks":[{"name":"data","type":"podvolume","ioCfg":{"writeBPS":1048576}}]}"#;
    let pods = [pod("p").qos("LS").claim_volume("data", "web-data").annotated(PodBlkioQos::KEY, text).read()];
    let written = |namespace: &str, mounted: &str| {
        let mounts = [("pvc-1", "/dev/vdb1"), ("data", "/dev/vda")].map(|(folder, device)| {
            let point = format!("/var/lib/kubelet/pods/p/volumes/kubernetes.io~csi/{folder}/mount");
            (point, device.to_string())
        });
        let claims = [((namespace.to_string(), "web-data".to_string()), mounted.to_string())].into();
        let disks = Disks { claims, mounts: mounts.into(), ..disks() };
        let groups = [(pods[0].place(), files(&[]))].into();
        texts(&plan(&defaults::qos(), &pods, &disks, &Files { groups, ..Files::default() }))
    };
    let want = ["blkio.throttle.write_bps_device 253:16 1048576", "blkio.cost.weight 253:16 100"];
    assert_eq!(written("default", "pvc-1"), want);
    assert_eq!(written("default", "pvc-2"), [""; 0], "nothing of it is mounted");
    assert_eq!(written("elsewhere", "pvc-1"), [""; 0], "a claim of another namespace");
}

/// v2 without cost control has limits and no weights; v1 has all files or none.
#[test]
fn kernels_without_weights() {
    let mut strategy = defaults::qos();
    let blocks = vec![device("/dev/vdb", r#"{"readBPS":5,"ioWeightPercent":60}"#)];
    strategy.be_class.as_mut().unwrap().blkio_qos = Some(BlkioQos { enable: Some(true), blocks });
    let mut present = files(&[]);
    present.remove(&File::BlkioWeight);
    for (is_weight_optional, want) in
        [(true, vec!["blkio.throttle.read_bps_device 253:16 5"]), (false, vec![])]
    {
        let groups = [(Place::Kube(KubeQos::BestEffort), present.clone())].into();
        let plan = plan(&strategy, &[], &disks(), &Files { groups, is_weight_optional });
        assert_eq!(texts(&plan), want, "{:?}", plan.problems);
    }
}

#[test]
fn the_root() {
    let model = r#"{"readLatency":4000,"writeLatencyPercent":90,"enableUserModel":true,"modelReadBPS":1,
        "modelReadSeqIOPS":3,"modelReadRandIOPS":5,"modelWriteBPS":2,"modelWriteSeqIOPS":4,"modelWriteRandIOPS":6}"#;
    let partial = r#"{"readLatency":4000,"writeLatencyPercent":90,"enableUserModel":true,"modelReadBPS":1}"#;
    let qos_vda = "blkio.cost.qos 253:0 enable=1 ctrl=user rpct=95 rlat=4000 wpct=90 wlat=3000";
    for (key, plan, want) in [
        (
            "koordlet-enforce#18.221",
            root(vec![block(BlockType::VolumeGroup, "vg0", "{}")], ""),
            vec![
                "blkio.cost.qos 253:16 enable=1 ctrl=user rpct=95 rlat=3000 wpct=95 wlat=3000",
                "blkio.cost.model 253:16 ctrl=auto",
            ],
        ),
        (
            "koordlet-enforce#18.222",
            root(vec![device("/dev/vda", model)], ""),
            vec![
                qos_vda,
                "blkio.cost.model 253:0 ctrl=user rbps=1 rseqiops=3 rrandiops=5 wbps=2 wseqiops=4 wrandiops=6",
            ],
        ),
        ("koordlet-enforce#18.223", root(vec![device("/dev/vda", partial)], ""), vec![qos_vda]),
        (
            "koordlet-enforce#18.224",
            root(Vec::new(), "253:16 enable=1 ctrl=user rpct=95.00\n"),
            vec!["blkio.cost.qos 253:16 enable=0"],
        ),
        ("no pod", root(vec![block(BlockType::PodVolume, "v1", "{}")], ""), vec![]),
    ] {
        assert_eq!(texts(&plan), want, "{key} {:?}", plan.problems);
    }
}

#[test]
fn reasons_name_the_block_and_whose_it_is() {
    let whys = |plan: Plan| plan.wishes.iter().map(|wish| wish.why.to_string()).collect::<Vec<_>>();
    let limited = best_effort(true, vec![device("/dev/vdb1", r#"{"readIOPS":100}"#)], files(&[]));
    assert_eq!(whys(limited)[0], "; block /dev/vdb1 of beClass");
    let left = best_effort(false, Vec::new(), files(&[(File::BlkioReadIops, "253:16 100")]));
    assert_eq!(whys(left)[0], "; no block of beClass names it any more");
    assert_eq!(whys(root(vec![device("/dev/vda", "{}")], ""))[0], "; block /dev/vda of cgroupRoot");
    let own = of_pod(r#"{"blocks":[{"name":"v1","type":"podvolume","ioCfg":{"writeBPS":7}}]}"#, files(&[]));
    assert_eq!(whys(own)[0], "; block v1 of koordinator.sh/blkioQOS");
}
