//! Pods with their own share of caches, on a directory that looks like resctrl. The test plays the kernel's part: it puts
//! the files into groups that appear. Only the kernel can remove a group that has files; which ones go is `decide`'s.

use super::*;

const BANDWIDTH: &str =
    r#"{"mb":{"schemata":{"percent":50},"schemataPerCache":[{"cacheID":1,"percent":20}]}}"#;
const CACHE: &str =
    r#"{"llc":{"schemata":{"range":[0,50]},"schemataPerCache":[{"cacheID":1,"range":[0,25]}]}}"#;

impl World {
    fn group(&self, pod: &str, file: &str) -> String {
        fs::read_to_string(self.host(&format!("sys/fs/resctrl/koordlet-{pod}/{file}"))).unwrap()
    }
}

fn with_annotation(name: &str, annotation: &str) -> Pod {
    let pod = pod(name).qos("LS").kube_qos("Burstable").annotated("node.koordinator.sh/resctrl", annotation);
    pod.container("main", &[], &[]).running().read()
}

const WHOLE: &str = "MB:0=100;1=100\nL3:0=fff;1=fff\n";

/// A machine with two caches that can be divided.
fn divisible(gates: &str, slo: Value, pods: Vec<Pod>) -> World {
    let mut world = World::new(Version::V1, &format!("-feature-gates={gates}"), slo, pods);
    world.put_host("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t: fpu cat_l3 mba\n");
    world.put_host("sys/fs/resctrl/info/L3/cbm_mask", "fff\n");
    world.put_host("sys/fs/resctrl/schemata", WHOLE);
    let cpu = |id| koord_linux::topology::Cpu { id, core: id, socket: id, node: id, l1: id, l3: id };
    let info = koord_linux::cpu_info::CpuInfo::read(&Root::host(world.dir.path()));
    let hardware = Hardware { info, cpus: (0..2).map(cpu).collect(), numa_nodes: Vec::new() };
    world.snapshot.hardware = Some(Arc::new(hardware));
    world
}

/// Pods of a class are told when they join its group, not of every thread that follows.
#[tokio::test]
async fn pods_are_told_when_they_join_their_class() {
    let ls = pod("web").qos("LS").kube_qos("Burstable").container("main", &[], &[]).running().read();
    let slo = json!({ "resourceQOSStrategy": { "lsClass": { "resctrlQOS": { "enable": true } } } });
    let mut world =
        divisible("Resctrl=false,RdtResctrl=true,GroupIdentity=false,CPUSetAllocator=false", slo, vec![ls]);
    world.listen();
    for group in ["LSR", "LS", "BE"] {
        world.put_host(&format!("sys/fs/resctrl/{group}/schemata"), WHOLE);
        world.put_host(&format!("sys/fs/resctrl/{group}/tasks"), "");
    }
    world.put("cpuset/kubepods/burstable/podweb/web-main/cpuset.cpus", "0-1\n");
    world.put("cpu/kubepods/burstable/podweb/web-main/tasks", "41\n42\n");
    world.turn_with_pods();
    assert_eq!(fs::read_to_string(world.host("sys/fs/resctrl/LS/tasks")).unwrap(), "41\n42\n");
    assert_eq!(world.told(), ["web ApplyCatL3GroupTasks: add 2 tasks to resctrl group LS; QoS LS"]);
    world.put("cpu/kubepods/burstable/podweb/web-main/tasks", "41\n42\n43\n");
    world.turn_with_pods();
    assert_eq!(fs::read_to_string(world.host("sys/fs/resctrl/LS/tasks")).unwrap(), "41\n42\n43\n");
    assert_eq!(world.told(), [""; 0]);
}

/// Somebody takes a group away, or the whole file system: the next turn makes it again, and its lines are written at once.
#[tokio::test]
async fn classes_whose_groups_go_get_them_back() {
    let batch = pod("batch").qos("BE").kube_qos("BestEffort").container("main", &[], &[]).running().read();
    let web = pod("web").qos("LS").kube_qos("Burstable").container("main", &[], &[]).running().read();
    let class = |end: i64| json!({ "resctrlQOS": { "enable": true, "catRangeEndPercent": end } });
    let slo = json!({ "resourceQOSStrategy": { "beClass": class(30), "lsClass": class(100) } });
    let mut world = divisible(
        "Resctrl=false,RdtResctrl=true,GroupIdentity=false,CPUSetAllocator=false",
        slo,
        vec![batch, web],
    );
    world.listen();
    world.turn_with_pods();
    let be = world.host("sys/fs/resctrl/BE");
    assert!(be.is_dir(), "the class has a group");
    for group in ["LSR", "LS", "BE"] {
        world.put_host(&format!("sys/fs/resctrl/{group}/schemata"), WHOLE);
    }
    world.turn_with_pods();
    let line = |world: &World| fs::read_to_string(world.host("sys/fs/resctrl/BE/schemata")).unwrap();
    assert!(line(&world).starts_with("L3:0=f;1=f"), "{}", line(&world));
    let told = world.told();
    assert_eq!(told.len(), 1, "nothing was written for others: {told:?}");
    assert!(told[0].starts_with("batch UpdateResctrl: update schemata to L3:0=f;1=f"), "{told:?}");
    world.turn_with_pods();
    assert_eq!(world.told(), [""; 0]);
    fs::remove_dir_all(&be).unwrap();
    world.turn_with_pods();
    assert!(be.is_dir(), "made again");
    world.put_host("sys/fs/resctrl/BE/schemata", WHOLE);
    world.turn_with_pods();
    assert!(line(&world).starts_with("L3:0=f;1=f"), "{}", line(&world));
}

/// Once, however often it is tried. Spec: koordlet-enforce 13.5.
#[test]
fn a_group_whose_threads_cannot_be_read_is_told() {
    let slo = json!({ "resourceQOSStrategy": { "beClass": { "resctrlQOS": { "enable": true } } } });
    let gates = "Resctrl=false,RdtResctrl=true,GroupIdentity=false,CPUSetAllocator=false";
    let mut world = divisible(gates, slo, vec![best_effort("batch")]);
    for group in ["LSR", "LS"] {
        world.put_host(&format!("sys/fs/resctrl/{group}/tasks"), "");
    }
    let turns =
        |world: &mut World| warnings("threads of a resctrl group", || (0..3).for_each(|_| world.second()));
    assert_eq!(turns(&mut world), 1);
    assert_eq!(turns(&mut world), 0);
    world.put_host("sys/fs/resctrl/BE/tasks", "");
    assert_eq!(turns(&mut world), 0);
    fs::remove_file(world.host("sys/fs/resctrl/BE/tasks")).unwrap();
    assert_eq!(turns(&mut world), 1, "again");
}

/// Caches that could not be told in the first second are told later.
#[test]
fn lines_are_written_once_the_root_can_be_read() {
    let slo = json!({ "resourceQOSStrategy": { "beClass": { "resctrlQOS": { "enable": true } } } });
    let gates = "Resctrl=false,RdtResctrl=true,GroupIdentity=false,CPUSetAllocator=false";
    let mut world = divisible(gates, slo, vec![best_effort("batch")]);
    for group in ["LSR", "LS", "BE"] {
        world.put_host(&format!("sys/fs/resctrl/{group}/schemata"), WHOLE);
    }
    let line = |world: &World| fs::read_to_string(world.host("sys/fs/resctrl/BE/schemata")).unwrap();
    fs::remove_file(world.host("sys/fs/resctrl/schemata")).unwrap();
    world.second();
    assert_eq!(line(&world), WHOLE);
    world.put_host("sys/fs/resctrl/schemata", WHOLE);
    world.second();
    assert!(line(&world).starts_with("L3:0=f;1=f"), "{}", line(&world));
}

#[test]
fn pods_have_their_own_shares() {
    let pods = vec![best_effort("batch"), with_annotation("cache", CACHE), with_annotation("web", BANDWIDTH)];
    let mut world = divisible("Resctrl=true,RdtResctrl=false", json!({}), pods);
    for pod in ["web", "cache"] {
        world.put(&format!("cpuset/kubepods/burstable/pod{pod}/{pod}-main/cpuset.cpus"), "0-1\n");
        world.put(&format!("cpu/kubepods/burstable/pod{pod}/{pod}-main/tasks"), "41\n42\n");
    }
    world.turn_with_pods();
    assert!(world.host("sys/fs/resctrl/koordlet-web").is_dir(), "the pod has a group");
    assert!(!world.host("sys/fs/resctrl/koordlet-batch").exists(), "one that asks for none has none");

    for pod in ["web", "cache"] {
        world.put_host(&format!("sys/fs/resctrl/koordlet-{pod}/schemata"), WHOLE);
        world.put_host(&format!("sys/fs/resctrl/koordlet-{pod}/tasks"), "");
    }
    world.turn_with_pods();
    assert_eq!(world.group("web", "schemata").trim(), "MB:0=50;1=20;");
    assert_eq!(world.group("cache", "schemata").trim(), "L3:0=3f;1=7;");
    assert_eq!(world.group("web", "tasks"), "41\n42\n");

    // Only threads that are new are moved.
    world.put("cpu/kubepods/burstable/podweb/web-main/tasks", "41\n42\n43\n");
    world.turn_with_pods();
    assert_eq!(world.group("web", "tasks"), "41\n42\n43\n");

    // A group whose pod has gone stays while it is young, for the list of pods may be older than it.
    world.pods.clear();
    world.turn_with_pods();
    assert!(world.host("sys/fs/resctrl/koordlet-web").is_dir());
}

/// Takes files away with a group, as the kernel does.
fn remove_whole(
    resctrl: &koord_linux::resctrl::Resctrl,
    group: &str,
) -> Result<(), koord_linux::error::Error> {
    fs::remove_dir_all(resctrl.schemata_path(group).parent().unwrap()).unwrap();
    Ok(())
}

/// A group is told of when it is made and when it goes, by events on its pod and by records. Spec: koordlet-enforce 15.10.
#[tokio::test]
async fn groups_of_pods_come_and_go() {
    let mut world =
        divisible("Resctrl=true,RdtResctrl=false", json!({}), vec![with_annotation("web", BANDWIDTH)]);
    let server = FakeApi::default();
    let kit = KitMetrics::new(world.act.setting().metrics.internal());
    let client = server.client(|seen| (201, seen.body.clone()));
    let (recorders, workers) = Recorders::new(&client, "n1", &kit);
    world.act.setting.recorders = Some(recorders);
    let resctrl = reconcile::PodResctrls::new(remove_whole);
    let entry = world.act.entries.iter_mut().find(|entry| entry.name == "runtime-hooks").unwrap();
    entry.strategy = Box::new(reconcile::Reconciler::with_resctrl(resctrl));
    world.turn_with_pods();
    world.put_host("sys/fs/resctrl/koordlet-web/schemata", WHOLE);
    world.turn_with_pods();
    let group = world.host("sys/fs/resctrl/koordlet-web");
    world.pods.clear();
    world.turn_with_pods();
    assert!(group.is_dir(), "too young");
    let old = std::time::SystemTime::now() - Duration::from_secs(11);
    fs::File::open(&group).unwrap().set_modified(old).unwrap();
    world.turn_with_pods();
    assert!(!group.exists(), "its pod has gone");
    world.turn_with_pods();
    let told = world.records("runtime-hooks");
    let groups: Vec<&str> =
        told.iter().map(|(_, told)| told.as_str()).filter(|told| told.contains("resctrl group")).collect();
    let want = [
        "create resctrl group koordlet-web; annotation node.koordinator.sh/resctrl",
        "remove resctrl group koordlet-web; the pod has ended",
    ];
    assert_eq!(groups, want);
    world.act.setting.recorders = None;
    for worker in workers {
        worker.run(tokio_util::sync::CancellationToken::new()).await;
    }
    let events: Vec<Value> = server.seen().into_iter().map(|seen| seen.body).collect();
    let words: Vec<(&Value, &Value, &Value)> = events
        .iter()
        .map(|event| (&event["reason"], &event["message"], &event["involvedObject"]["name"]))
        .collect();
    let (reason, web) = (json!("Pod Level Resctrl"), json!("web"));
    let (made, gone) = (json!("Create Resctrl Group"), json!("Remove Resctrl Group"));
    assert_eq!(words, [(&reason, &made, &web), (&reason, &gone, &web)]);
    assert!(events.iter().all(|event| event["type"] == "Normal"), "{events:?}");
}
