use koord_api::annotation::Annotation;
use koord_api::annotation::node_side::PodMemoryQos;
use koord_api::slo::defaults;
use proptest::prelude::*;

use super::*;
use crate::decide::sketch::{PodSketch, node, pod};

const GIB: i64 = 1 << 30;

/// All classes with the same memory configuration.
fn strategy(memory: &MemoryQos) -> ResourceQosStrategy {
    let mut qos = defaults::qos();
    let classes = [&mut qos.lsr_class, &mut qos.ls_class, &mut qos.be_class, &mut qos.system_class];
    for class in classes.into_iter().flatten() {
        class.memory_qos = Some(memory.clone());
    }
    qos
}

fn values(plan: &Plan, place: &Place) -> Vec<(File, i64)> {
    let number = |wish: &Wish| match wish.value {
        Value::Number(number) => number,
        _ => panic!("{wish:?}"),
    };
    plan.batch.wishes().filter(|wish| wish.place == *place).map(|wish| (wish.file, number(wish))).collect()
}

fn value(plan: &Plan, place: &Place, file: File) -> Option<i64> {
    values(plan, place).into_iter().find(|(name, _)| *name == file).map(|(_, value)| value)
}

fn sized(name: &str, request: &str, limit: &str) -> PodSketch {
    let amount = |text: &'static str| move |amount: &str| vec![(text, amount.to_string())];
    let list = |text: &str| if text.is_empty() { Vec::new() } else { amount("memory")(text) };
    let (request, limit) = (list(request), list(limit));
    let request: Vec<(&str, &str)> = request.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
    let limit: Vec<(&str, &str)> = limit.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
    pod(name).qos("LS").container("c", &request, &limit).running()
}

fn container_place(pod: &Pod) -> Place {
    pod.containers[0].place(pod).unwrap()
}

#[test]
fn throttling() {
    for (key, request, limit, percent, min, want) in [
        ("koordlet-enforce#18.57", "1Gi", "2Gi", 80, 0, 1_932_734_464),
        ("koordlet-enforce#18.58", "512Mi", "", 80, 0, 55_082_954_752),
        ("koordlet-enforce#18.59", "100000000", "200000000", 33, 0, 132_997_120),
        ("koordlet-enforce#18.60", "1Gi", "2Gi", 0, 0, i64::MAX),
        ("koordlet-enforce#18.168", "1000000001", "1000000001", 80, 100, 1_000_000_001),
        ("koordlet-enforce#18.169", "", "", 80, 0, 54_975_578_112),
        ("koordlet-enforce#18.170", "1Gi", "2Gi", 100, 0, 2_147_483_648),
    ] {
        let memory = MemoryQos {
            min_limit_percent: Some(min),
            throttling_percent: Some(percent),
            ..MemoryQos::default()
        };
        let pods = [sized("a", request, limit).read()];
        let node = node(&[], &[("memory", "64Gi")]).read();
        let plan = plan(&strategy(&memory), &node, &pods, 4096);
        assert_eq!(value(&plan, &container_place(&pods[0]), File::MemoryHigh), Some(want), "{key}");
    }
}

/// One that has ended has no group any more. Spec: koordlet-enforce 19.19.
#[test]
fn init_containers_have_their_own_values() {
    let amounts = [("memory", "1Gi")];
    let setup = sized("a", "1Gi", "2Gi").initializing("setup", &amounts, &amounts);
    let pods = [setup.read()];
    let plan = protected(50, 0, &pods);
    let place = pods[0].init_containers[0].place(&pods[0]).unwrap();
    assert_eq!(value(&plan, &place, File::MemoryMin), Some(GIB / 2));
    assert_eq!(value(&plan, &container_place(&pods[0]), File::MemoryMin), Some(GIB / 2));
    let ended = Pod { init_containers: Vec::new(), ..pods[0].clone() };
    assert_eq!(values(&protected(50, 0, &[ended]), &place), []);
}

fn protected(min: i64, low: i64, pods: &[Pod]) -> Plan {
    let memory =
        MemoryQos { min_limit_percent: Some(min), low_limit_percent: Some(low), ..MemoryQos::default() };
    plan(&strategy(&memory), &node(&[], &[]).read(), pods, 4096)
}

#[test]
fn protection_of_pods() {
    let pods = [sized("a", "1Gi", "").read()];
    let min_low = |min, low| {
        let plan = protected(min, low, &pods);
        let place = pods[0].place();
        (value(&plan, &place, File::MemoryMin), value(&plan, &place, File::MemoryLow))
    };
    assert_eq!(min_low(100, 50), (Some(GIB), Some(GIB)), "koordlet-enforce#18.61");
    assert_eq!(min_low(50, 0), (Some(GIB / 2), Some(0)), "koordlet-enforce#18.62");
}

#[test]
fn protection_of_classes() {
    let burstable = |name| sized(name, "1Gi", "").read();
    let guaranteed = sized("g", "2Gi", "2Gi").kube_qos("Guaranteed").read();
    let sums = |plan: &Plan, class| plan.classes[place_of(class)].1;
    let plan = protected(50, 0, &[burstable("a"), burstable("b"), guaranteed]);
    let root = Place::Kube(KubeQos::Guaranteed);
    assert_eq!(sums(&plan, KubeQos::Burstable).min, GIB, "koordlet-enforce#18.63");
    assert_eq!(value(&plan, &root, File::MemoryMin), Some(2 * GIB), "koordlet-enforce#18.63");
    let pods = [burstable("a"), burstable("b")];
    let plan = protected(50, 20, &pods);
    for place in [pods[0].place(), container_place(&pods[0])] {
        assert_eq!(value(&plan, &place, File::MemoryMin), Some(536_870_912), "koordlet-enforce#18.171");
        assert_eq!(value(&plan, &place, File::MemoryLow), Some(536_870_912), "koordlet-enforce#18.171");
    }
    for place in [root, Place::Kube(KubeQos::Burstable)] {
        assert_eq!(value(&plan, &place, File::MemoryMin), Some(1_073_741_824), "koordlet-enforce#18.171");
        assert_eq!(value(&plan, &place, File::MemoryLow), Some(429_496_728), "koordlet-enforce#18.171");
    }
    let left = Place::Kube(KubeQos::BestEffort);
    assert_eq!(value(&plan, &left, File::MemoryMin), Some(0), "koordlet-enforce#18.172");
    assert_eq!(value(&plan, &left, File::MemoryLow), Some(0), "koordlet-enforce#18.172");
}

/// Who is killed first, and whether whole: groups of Kubernetes classes follow LSR, LS and BE.
#[test]
fn classes_say_who_is_killed_first() {
    let mut strategy = strategy(&defaults::memory_none());
    let classes = [&mut strategy.lsr_class, &mut strategy.ls_class, &mut strategy.be_class];
    for (class, priority) in classes.into_iter().flatten().zip([12, 6, 1]) {
        let memory = class.memory_qos.as_mut().unwrap();
        (memory.priority_enable, memory.priority, memory.oom_kill_group) =
            (Some(1), Some(priority), Some(i64::from(priority == 1)));
    }
    let plan = plan(&strategy, &node(&[], &[]).read(), &[], 4096);
    for (class, priority, group) in
        [(KubeQos::Guaranteed, 12, 0), (KubeQos::Burstable, 6, 0), (KubeQos::BestEffort, 1, 1)]
    {
        let of = |file| value(&plan, &Place::Kube(class), file);
        let held = [File::MemoryUsePriorityOom, File::MemoryPriority, File::MemoryOomGroup].map(of);
        assert_eq!(held, [Some(1), Some(priority), Some(group)], "{class:?}");
        assert_eq!(of(File::MemoryWmarkRatio), None, "{class:?}");
        assert_eq!(of(File::MemoryHigh), None, "{class:?}");
    }
}

#[test]
fn annotations() {
    let with = |qos: &str, text: &str| {
        let pod = sized("a", "1Gi", "").qos(qos).annotated(PodMemoryQos::KEY, text).read();
        config(&strategy(&defaults::memory_none()), &pod)
    };
    let odd = with("LS", r#"{"policy":"xx","wmarkRatio":80}"#);
    let want = MemoryQos { wmark_ratio: Some(80), ..defaults::memory_none() };
    assert_eq!(odd, want, "koordlet-enforce#18.173");
    let services = MemoryQos {
        wmark_ratio: Some(95),
        wmark_scale_permill: Some(20),
        wmark_min_adj: Some(-25),
        ..defaults::memory_none()
    };
    let system = sized("a", "1Gi", "").qos("SYSTEM").annotated(PodMemoryQos::KEY, r#"{"policy":"auto"}"#);
    let auto = config(&strategy(&services), &system.read());
    let got = (auto.wmark_ratio, auto.wmark_scale_permill, auto.wmark_min_adj);
    assert_eq!(got, (Some(0), Some(50), Some(0)), "koordlet-enforce#18.174");
    assert_eq!(with("LS", "{"), defaults::memory_none(), "unreadable ones do not count");
}

#[test]
fn page_cache() {
    let files = |edit: fn(&mut MemoryQos)| {
        let mut memory = MemoryQos::default();
        edit(&mut memory);
        let pods = [sized("a", "1Gi", "2Gi").read()];
        let plan = plan(&strategy(&memory), &node(&[], &[]).read(), &pods, 4096);
        let place = pods[0].place();
        [File::MemoryPagecacheLimitEnable, File::MemoryPagecacheLimitSize, File::MemoryPagecacheLimitSync]
            .map(|file| value(&plan, &place, file))
    };
    let half = files(|memory| memory.page_cache_limit_percent = Some(50));
    assert_eq!(half, [Some(1), Some(1_073_741_824), Some(0)], "koordlet-enforce#18.175");
    let large = files(|memory| memory.page_cache_limit_size = Some(99_999_999_999));
    assert_eq!(large, [Some(1), Some(2_147_483_648), Some(0)], "koordlet-enforce#18.176");
    let off = files(|memory| {
        memory.page_cache_enable = Some(false);
        memory.page_cache_limit_size = Some(1_048_576);
    });
    assert_eq!(off, [Some(0), Some(1_048_576), Some(0)], "koordlet-enforce#18.177");
    assert_eq!(files(|memory| memory.page_cache_enable = Some(true)), [Some(1), None, None]);
    assert_eq!(files(|memory| memory.page_cache_limit_size = Some(0)), [Some(0), Some(0), None]);
    assert_eq!(files(|_| {}), [None, None, None]);
}

#[test]
fn best_effort_pods_count_their_own_memory() {
    let be = pod("be").qos("BE").container("c", &[("kubernetes.io/batch-memory", "1Gi")], &[]).running();
    let pods = [be.read(), sized("over", "1Gi", "").phase("Succeeded").read()];
    let plan = protected(50, 0, &pods);
    assert_eq!(value(&plan, &pods[0].place(), File::MemoryMin), Some(GIB / 2));
    assert_eq!(values(&plan, &pods[1].place()), []);
}

proptest! {
    /// No container is protected beyond its pod, no pod beyond its class, and throttling never begins below
    /// what is protected.
    #[test]
    fn children_stay_within_parents(
        min in 0_i64..=100, low in 0_i64..=100, throttle in 0_i64..=100,
        requests in prop::collection::vec(0_i64..(1 << 40), 1..8),
    ) {
        let memory = MemoryQos {
            min_limit_percent: Some(min),
            low_limit_percent: Some(low),
            throttling_percent: Some(throttle),
            ..MemoryQos::default()
        };
        let sketch = |(index, bytes): (usize, &i64)| sized(&format!("p{index}"), &bytes.to_string(), "").read();
        let pods: Vec<Pod> = requests.iter().enumerate().map(sketch).collect();
        let plan = plan(&strategy(&memory), &node(&[], &[("memory", "64Gi")]).read(), &pods, 4096);
        let of = |place: &Place, file| value(&plan, place, file).unwrap();
        let mut sum = 0;
        for pod in &pods {
            let (own, inner) = (of(&pod.place(), File::MemoryMin), of(&container_place(pod), File::MemoryMin));
            prop_assert!(inner <= own);
            prop_assert!(of(&container_place(pod), File::MemoryHigh) >= inner);
            sum += own;
        }
        prop_assert!(sum <= of(&Place::Kube(KubeQos::Guaranteed), File::MemoryMin));
    }
}

#[test]
fn numbers_are_told() {
    let memory = MemoryQos {
        min_limit_percent: Some(40),
        throttling_percent: Some(80),
        wmark_ratio: Some(95),
        ..MemoryQos::default()
    };
    let pods = [sized("a", "1000", "2000").read(), sized("b", "1000", "").read()];
    let node = node(&[], &[("memory", "9000")]).read();
    let plan = plan(&strategy(&memory), &node, &pods, 1);
    let told = |place: Place, file: File| {
        let wish = plan.batch.wishes().find(|wish| wish.place == place && wish.file == file);
        wish.map(|wish| wish.audit_message(None)).unwrap_or_default()
    };
    let class = "class LS, minLimitPercent 40, throttlingPercent 80, wmarkRatio 95";
    for (place, file, want) in [
        (Place::Kube(KubeQos::Guaranteed), File::MemoryMin, "memory.min to 800; sum over 2 pods".to_owned()),
        (pods[0].place(), File::MemoryMin, format!("memory.min to 400; request 1000, limit 2000; {class}")),
        (
            container_place(&pods[0]),
            File::MemoryHigh,
            format!("memory.high to 1800; request 1000, limit 2000; {class}"),
        ),
        (
            container_place(&pods[1]),
            File::MemoryHigh,
            format!("memory.high to 7400; request 1000, limit none, node 9000; {class}"),
        ),
        (
            container_place(&pods[0]),
            File::MemoryWmarkRatio,
            format!("memory.wmark_ratio to 95; request 1000, limit 2000; {class}"),
        ),
    ] {
        assert_eq!(told(place, file), format!("update {want}"));
    }
    let own = sized("a", "1000", "").annotated(PodMemoryQos::KEY, "{}").read();
    let size = Size { request: 1000, limit: None, node: None };
    let numbers = Numbers::new(&own, &MemoryQos::default(), size);
    assert_eq!(numbers.to_string(), "request 1000, limit none; class LS and annotation");
}
