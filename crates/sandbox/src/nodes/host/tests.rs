use serde_json::json;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn shape() -> Shape {
    Shape { cores: 4, threads: 2, sockets: 2, memory: 16 << 30, ..Shape::default() }
}

fn tenant(uid: &str, class: &str, resources: serde_json::Value, cpu: i64) -> Tenant {
    let pod = json!({
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
        "status": {"qosClass": class, "containerStatuses": [{"name": "main", "containerID": format!("containerd://{uid}c"),
            "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]},
    });
    let read = Tenant::read(&serde_json::from_value(pod).unwrap()).unwrap();
    Tenant { wants: Use { cpu, memory: 100 << 20 }, ..read }
}

fn paths(list: &[(String, Settings)]) -> Vec<&str> {
    list.iter().map(|(path, _)| path.as_str()).collect()
}

fn text(files: &[File], path: &str) -> String {
    files.iter().find(|(name, _)| name == path).map(|(_, text)| text.clone()).unwrap_or_default()
}

#[test]
fn groups_come_and_go_with_pods() {
    let mut host = Host::new(&shape());
    let first = host.settle(Vec::new(), Use::default());
    assert_eq!(paths(&first.made), ["kubepods", "kubepods/burstable", "kubepods/besteffort"]);
    assert_eq!(first.made[0].1, Settings { shares: 8192, quota_us: -1, memory: (16 << 30) - (100 << 20) });
    let web = tenant("w", "Burstable", json!({"requests": {"cpu": "500m"}}), 0);
    let batch = tenant("b", "BestEffort", json!({}), 0);
    let sandbox = |tenant: &Tenant| tenant.containers[1].id.clone();
    let (web_pause, batch_pause) = (sandbox(&web), sandbox(&batch));
    let second = host.settle(vec![web, batch.clone()], Use::default());
    assert_eq!(
        paths(&second.made),
        [
            "kubepods/burstable/podw",
            "kubepods/burstable/podw/wc",
            &format!("kubepods/burstable/podw/{web_pause}"),
            "kubepods/besteffort/podb",
            "kubepods/besteffort/podb/bc",
            &format!("kubepods/besteffort/podb/{batch_pause}"),
        ]
    );
    assert_eq!(host.burstable_shares().1, "512\n");
    let third = host.settle(vec![batch], Use::default());
    assert!(third.made.is_empty());
    assert_eq!(third.gone.last().unwrap(), "kubepods/burstable/podw", "children first: {:?}", third.gone);
    assert_eq!(third.gone.len(), 3);
    assert_eq!(host.burstable_shares().1, "2\n");
}

#[test]
fn pods_get_what_kubelet_gives_them() {
    let all = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1500m", "memory": "2Gi"}});
    for (name, class, resources, want) in [
        ("burstable", "Burstable", all, Settings { shares: 1024, quota_us: 150_000, memory: 2 << 30 }),
        (
            "a limit alone",
            "Guaranteed",
            json!({"limits": {"cpu": "2"}}),
            Settings { shares: 2048, quota_us: 200_000, memory: 0 },
        ),
        ("nothing", "BestEffort", json!({}), Settings::LEAST),
        (
            "very little",
            "Burstable",
            json!({"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}}),
            Settings { shares: 2, quota_us: 1000, memory: 0 },
        ),
        (
            "batch CPUs mean nothing to it",
            "BestEffort",
            json!({"requests": {"kubernetes.io/batch-cpu": "3000"}}),
            Settings::LEAST,
        ),
    ] {
        let tenant = tenant("p", class, resources, 0);
        assert_eq!(tenant.settings, want, "{name}");
        assert_eq!(tenant.containers[0].settings, want, "{name}");
    }
    let path = |class: &str| tenant("p", class, json!({}), 0).path();
    assert_eq!(path("Guaranteed"), "kubepods/podp");
    assert_eq!(path("Burstable"), "kubepods/burstable/podp");
}

/// Both want more than there is.
fn crowd() -> Vec<Tenant> {
    vec![
        tenant("w", "Burstable", json!({"requests": {"cpu": "4"}}), 4000),
        tenant("b", "BestEffort", json!({}), 6000),
    ]
}

fn limits(cpus: &str) -> BTreeMap<String, Limit> {
    let shares = |shares: i64| Limit { shares, ..Limit::default() };
    let best_effort = Limit { cpus: Some(cpus.parse().unwrap()), ..shares(2) };
    BTreeMap::from([(BEST_EFFORT.to_owned(), best_effort), (BURSTABLE.to_owned(), shares(4096))])
}

#[test]
fn limits_hold_pods_back_and_counters_show_it() {
    let mut host = Host::new(&shape());
    host.settle(crowd(), Use { cpu: 500, memory: 1 << 30 });
    let (web, batch) = ("kubepods/burstable/podw", "kubepods/besteffort/podb");
    host.share(&limits("0-7"));
    // The service has the heavier class; the rest of the machine is for the other.
    assert_eq!((host.given(web), host.given(batch)), (4000, 3500));
    host.share(&limits("2-3"));
    assert_eq!((host.given(web), host.given(batch)), (4000, 2000));
    for _ in 0..10 {
        host.advance(SECOND / 10);
    }
    let usage = |group: &str| text(&host.clocks(), &file("cpuacct", group, "cpuacct.usage"));
    assert_eq!(usage(web), "4000000000\n");
    assert_eq!((usage(batch), usage("kubepods")), ("2000000000\n".to_owned(), "6000000000\n".to_owned()));
    let stat = text(&host.clocks(), "proc/stat");
    let lines: Vec<Vec<&str>> = stat.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 9);
    let worked = |line: usize| lines[line][1].parse::<u64>().unwrap();
    let all: u64 = (1..9).map(|line| worked(line) - 10_000_000).sum();
    assert!((640..=650).contains(&all), "6.5 CPUs worked a second: {all}");
    assert!((worked(0) - 80_000_000).abs_diff(650) <= 10, "{stat}");
    assert!(worked(3) > worked(1), "where batch work is there is more to do: {stat}");
    let files = host.gauges();
    let pressure = text(&files, &file("cpuacct", batch, "cpu.pressure"));
    assert!(pressure.starts_with("some avg10=6.") && pressure.contains("total=667"), "{pressure}");
    let calm = text(&files, &file("cpuacct", web, "cpu.pressure"));
    assert!(calm.starts_with("some avg10=0.00"), "{calm}");
    assert_eq!(
        text(&files, &file("cpu", batch, "cpu.stat")),
        "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"
    );
}

#[test]
fn quotas_throttle() {
    let mut host = Host::new(&shape());
    host.settle(crowd(), Use::default());
    let mut limits = limits("0-7");
    limits.get_mut(BEST_EFFORT).unwrap().quota_milli = Some(1500);
    host.share(&limits);
    host.advance(SECOND);
    let stat = text(&host.gauges(), &file("cpu", BEST_EFFORT, "cpu.stat"));
    assert_eq!(stat, "nr_periods 10\nnr_throttled 10\nthrottled_time 4500000000\n");
    let below = text(&host.gauges(), &file("cpu", "kubepods/besteffort/podb", "cpu.stat"));
    assert!(below.starts_with("nr_periods 0\n"), "it has no quota of its own: {below}");
}

#[test]
fn memory_is_told_everywhere() {
    let mut host = Host::new(&shape());
    host.settle(crowd(), Use { cpu: 0, memory: 1 << 30 });
    host.share(&BTreeMap::new());
    let files = host.gauges();
    let stat = text(&files, &file("memory", "kubepods/besteffort/podb/bc", "memory.stat"));
    assert!(stat.contains("\ntotal_active_anon 104857600\n"), "{stat}");
    let numa = text(&files, &file("memory", "kubepods/besteffort/podb", "memory.numa_stat"));
    assert!(numa.starts_with("total=25600 N0=12800 N1=12800\n"), "{numa}");
    let info = text(&files, "proc/meminfo");
    // 16 GiB less one for the system and 200 MiB of pods.
    assert!(
        info.contains("MemTotal: 16777216 kB\n") && info.contains("MemAvailable: 15523840 kB\n"),
        "{info}"
    );
    let node = text(&files, "sys/bus/node/devices/node1/meminfo");
    assert!(node.starts_with("Node 1 MemTotal: 8388608 kB\n"), "{node}");
}

#[test]
fn the_machine_is_the_shape() {
    let files = machine(&shape());
    let of = |path: &str| text(&files, path);
    assert_eq!(of("sys/devices/system/cpu/online"), "0-7\n");
    assert_eq!(of("sys/devices/system/node/node1/cpulist"), "2-3,6-7\n");
    assert_eq!(of("sys/devices/system/cpu/cpu1/topology/thread_siblings_list"), "1,5\n");
    assert_eq!(of("sys/devices/system/cpu/cpu6/cache/index3/shared_cpu_list"), "2-3,6-7\n");
    assert_eq!(of("sys/devices/system/cpu/smt/active"), "1\n");
    assert_eq!(of("proc/cpuinfo").matches("processor").count(), 8);
}
