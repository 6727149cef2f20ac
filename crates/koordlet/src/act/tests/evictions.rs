//! Evictions: who goes, when, and who does not go in somebody's place.

use super::*;

fn memory_threshold() -> Value {
    json!({ "resourceUsedThresholdWithBE": { "enable": true, "memoryEvictThresholdPercent": 70 } })
}

const GIB: f64 = 1_073_741_824.0;

/// 16 GiB, more than 70 % of it in use: pods go until 68 % is left, then there is peace for four seconds.
#[test]
fn memory_is_freed() {
    let line = "-feature-gates=BEMemoryEvict=true";
    let pods = vec![best_effort("a"), best_effort("b"), best_effort("c")];
    let mut world = World::new(Version::V1, line, memory_threshold(), pods);
    let full = |world: &mut World| {
        world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
        for (uid, used) in [("a", 0.5), ("b", 2.0), ("c", 1.0)] {
            world.sample(Kind::PodMemoryUsage, Some(uid), used * GIB);
        }
        world.second();
    };
    full(&mut world);
    assert_eq!(world.evictor.names, ["b"], "the largest suffices");
    for _ in 0..3 {
        full(&mut world);
    }
    assert_eq!(world.evictor.names.len(), 1, "cooling");
    full(&mut world);
    assert_eq!(world.evictor.names, ["b", "b"], "killed containers come back");
}

/// Who takes the memory in its first seconds goes, and not who was measured before it; who is never measured holds nobody up.
#[test]
fn nobody_goes_in_place_of_a_pod_that_is_not_measured_yet() {
    let running =
        |name: &str| pod(name).qos("BE").kube_qos("BestEffort").container("main", &[], &[]).running().read();
    let line = "-feature-gates=BEMemoryEvict=true";
    for (name, measured_after, want) in [("soon", 2, "hog"), ("never", 99, "small")] {
        let pods = vec![running("hog"), running("small")];
        let mut world = World::new(Version::V1, line, memory_threshold(), pods);
        for second in 0..4 {
            assert_eq!(world.evictor.names, [""; 0], "{name}");
            world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
            world.sample(Kind::PodMemoryUsage, Some("small"), 0.5 * GIB);
            if second >= measured_after {
                world.sample(Kind::PodMemoryUsage, Some("hog"), 8.0 * GIB);
            }
            world.second();
            if world.evictor.names.len() == 1 && second == measured_after {
                break;
            }
        }
        assert_eq!(world.evictor.names[0], want, "{name}");
    }
}

/// Also when turns are rare: the wait is of seconds.
#[test]
fn a_wait_for_a_measurement_is_no_longer_than_that() {
    let running =
        |name: &str| pod(name).qos("BE").kube_qos("BestEffort").container("main", &[], &[]).running().read();
    let line = "-feature-gates=BEMemoryEvict=true -memory-evict-interval-seconds=600";
    let mut world = World::new(Version::V1, line, memory_threshold(), vec![running("new"), running("hog")]);
    for second in 0..=3 {
        assert_eq!(world.evictor.names, [""; 0], "second {second}");
        world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
        world.sample(Kind::PodMemoryUsage, Some("hog"), 8.0 * GIB);
        world.second();
    }
    assert_eq!(world.evictor.names, ["hog"]);
}

/// Pods that the priority triggers may evict, and one that they may not. `b` has the lower priority, `c` the lowest.
fn batch_pods() -> Vec<Pod> {
    let batch = |name: &str, priority: i32, cpu: &str, memory: &str| {
        let requests = [("kubernetes.io/batch-cpu", cpu), ("kubernetes.io/batch-memory", memory)];
        pod(name)
            .qos("BE")
            .kube_qos("BestEffort")
            .priority(priority)
            .container("main", &requests, &[])
            .running()
    };
    let willing =
        |sketch: crate::decide::sketch::PodSketch| sketch.label("koordinator.sh/eviction-enabled", "true");
    vec![
        willing(batch("a", 5500, "4000", "4Gi")).read(),
        willing(batch("b", 5400, "2000", "2Gi")).read(),
        batch("c", 5000, "0", "0").read(),
    ]
}

/// Everything that evicts, on a node that is short of everything.
fn short_of_everything(line: &str, is_enabled: bool) -> World {
    let slo = json!({ "resourceUsedThresholdWithBE": { "enable": is_enabled,
        "evictEnabledPriorityThreshold": 7999, "allocatableEvictPriorityThreshold": 7999,
        "cpuEvictThresholdPercent": 70, "memoryEvictThresholdPercent": 70,
        "cpuAllocatableEvictThresholdPercent": 100, "cpuAllocatableEvictLowerPercent": 80,
        "memoryAllocatableEvictThresholdPercent": 100, "memoryAllocatableEvictLowerPercent": 80,
        "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80 } });
    let line = format!("{line} -cpu-evict-cool-time-seconds=1 -only-evict-by-api=true");
    let mut world = World::new(Version::V2, &line, slo, batch_pods());
    world.evictor.is_remembering = true;
    let capacity = [("cpu", "8"), ("memory", "16Gi")];
    let batch = [("kubernetes.io/batch-cpu", "5000"), ("kubernetes.io/batch-memory", "5Gi")];
    let node = node(&capacity, &[capacity, batch].concat()).read();
    world.snapshot.node = Some(Arc::new(NodeState { node, ..NodeState::default() }));
    for _ in 0..4 {
        for (allocation, milli) in [("usage", 2000.0), ("request", 6000.0), ("real-limit", 2000.0)] {
            world.best_effort_sample(allocation, milli);
        }
        world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
        for (uid, used) in [("a", 2.0), ("b", 0.5), ("c", 0.1)] {
            world.sample(Kind::PodMemoryUsage, Some(uid), used * GIB);
        }
        world.seconds(1, 7.0, &[("a", 2.0), ("b", 0.5), ("c", 0.1)]);
    }
    world
}

/// Each gate has its trigger, and the numbers of that trigger say how many go. Spec: koordlet-enforce 8, 9.
#[test]
fn every_eviction_gate_evicts() {
    for (gate, want) in [
        // 87 % of 8 cores, down to 68 %: 1520m, of which b uses 500m.
        ("CPUEvict", &["b", "a"][..]),
        // 6000m requested of 5000m, down to 80 %: 2000m, which b requests.
        ("CPUAllocatableEvict", &["b"]),
        // 75 % of 16 GiB, down to 68 %: 1.12 GiB, of which b uses half a GiB.
        ("MemoryEvict", &["b", "a"]),
        // 6 GiB requested of 5 GiB, down to 80 %: 2 GiB, which b requests.
        ("MemoryAllocatableEvict", &["b"]),
        // A third of 6000m, up to 80 %: 2800m; c frees nothing, and goes first all the same.
        ("BECPUEvict", &["c", "b", "a"]),
        ("BEMemoryEvict", &["c", "b", "a"]),
    ] {
        let world = short_of_everything(&format!("-feature-gates={gate}=true"), true);
        assert_eq!(world.evictor.names, want, "{gate}");
    }
}

/// Gates alone evict nobody: the node's strategy must want it, too. Spec: koordlet-enforce 1.3.
#[test]
fn a_strategy_that_is_off_evicts_nobody() {
    let gates = [
        "CPUEvict",
        "CPUAllocatableEvict",
        "MemoryEvict",
        "MemoryAllocatableEvict",
        "BECPUEvict",
        "BEMemoryEvict",
    ];
    let line = format!("-feature-gates={}", gates.map(|gate| format!("{gate}=true")).join(","));
    assert_eq!(short_of_everything(&line, false).evictor.names, [""; 0]);
    assert_ne!(short_of_everything(&line, true).evictor.names, [""; 0]);
}

/// A pod on its way counts as gone, and one that did not go is followed by the next.
#[test]
fn pods_on_their_way_count() {
    let line = "-feature-gates=BEMemoryEvict=true -only-evict-by-api=true";
    let mut world =
        World::new(Version::V1, line, memory_threshold(), vec![best_effort("a"), best_effort("b")]);
    world.evictor.is_remembering = true;
    let full = |world: &mut World| {
        world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
        world.sample(Kind::PodMemoryUsage, Some("a"), 1.2 * GIB);
        world.sample(Kind::PodMemoryUsage, Some("b"), 0.9 * GIB);
        world.second();
    };
    full(&mut world);
    for _ in 0..10 {
        full(&mut world);
    }
    assert_eq!(world.evictor.names, ["a"], "a is leaving, and enough");
    let mut world =
        World::new(Version::V1, line, memory_threshold(), vec![best_effort("a"), best_effort("b")]);
    world.evictor.outcome = Some(Outcome::Refused);
    full(&mut world);
    assert_eq!(world.evictor.names, ["a", "b"]);
    full(&mut world);
    assert_eq!(world.evictor.names.len(), 4, "nobody went, so nothing cools");
    for _ in 0..20 {
        full(&mut world);
    }
    assert_eq!(world.evictor.names.len(), 10, "again and again, but ever less often");
}

/// Who does not answer is not asked about every pod, nor every second; a pod that may be on its way counts meanwhile.
#[test]
fn nobody_waits_for_those_who_do_not_answer() {
    let line = "-feature-gates=BEMemoryEvict=true -only-evict-by-api=true";
    let pods = || vec![best_effort("a"), best_effort("b"), best_effort("c")];
    for (outcome, tried) in [
        (Outcome::Unreachable, &["a", "a", "a", "a"][..]),
        // It suffices, for half a minute.
        (Outcome::Unanswered, &["a"]),
    ] {
        let mut world = World::new(Version::V1, line, memory_threshold(), pods());
        world.evictor.is_remembering = true;
        world.evictor.outcome = Some(outcome);
        for _ in 0..15 {
            world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
            for (uid, used) in [("a", 1.2), ("b", 0.9), ("c", 0.8)] {
                world.sample(Kind::PodMemoryUsage, Some(uid), used * GIB);
            }
            world.second();
        }
        assert_eq!(world.evictor.names, tried, "{outcome:?}");
    }
}

/// A pod that goes for want of CPU is not evicted for want of memory as well.
#[test]
fn evictions_know_of_each_other() {
    let line = "-feature-gates=BECPUEvict=true,BEMemoryEvict=true -only-evict-by-api=true -cpu-evict-cool-time-seconds=1";
    let slo = json!({ "resourceUsedThresholdWithBE": { "enable": true, "memoryEvictThresholdPercent": 99,
        "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80 } });
    let batch = [("kubernetes.io/batch-cpu", "8000")];
    let be = |name: &str| {
        pod(name).qos("BE").kube_qos("BestEffort").container("main", &batch, &batch).running().read()
    };
    let mut world = World::new(Version::V1, line, slo, vec![be("a"), be("b")]);
    world.evictor.is_remembering = true;
    for _ in 0..3 {
        for (allocation, milli) in [("usage", 4000.0), ("request", 16_000.0), ("real-limit", 4000.0)] {
            world.best_effort_sample(allocation, milli);
        }
        world.seconds(1, 5.0, &[("a", 3.0), ("b", 1.0)]);
    }
    // 16 cores requested and a quarter of it given: 55 percent are freed, which takes both.
    assert_eq!(world.evictor.names, ["a", "b"]);
    world.order(memory_threshold());
    for _ in 0..5 {
        world.sample(Kind::NodeMemoryUsage, None, 12.0 * GIB);
        world.sample(Kind::PodMemoryUsage, Some("a"), 0.1 * GIB);
        world.sample(Kind::PodMemoryUsage, Some("b"), 2.0 * GIB);
        world.second();
    }
    assert_eq!(world.evictor.names, ["a", "b"]);
}

/// Requests of a job that is done and listed still leave nobody unsatisfied. Spec: koordlet-enforce 8.1, item 26.
#[test]
fn nobody_goes_for_the_sake_of_pods_that_have_ended() {
    let line = "-feature-gates=BECPUEvict=true -cpu-evict-cool-time-seconds=1";
    let slo = json!({ "resourceUsedThresholdWithBE": { "enable": true,
        "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80 } });
    let batch = |cpu: &'static str| [("kubernetes.io/batch-cpu", cpu)];
    let be = |name: &str, cpu| pod(name).qos("BE").kube_qos("BestEffort").container("main", &batch(cpu), &[]);
    for (phase, want) in [("Succeeded", &[][..]), ("Failed", &[]), ("Running", &["job"])] {
        let pods =
            vec![be("runs", "10000").running().read(), be("job", "20000").running().phase(phase).read()];
        let mut world = World::new(Version::V1, line, slo.clone(), pods);
        for _ in 0..3 {
            for (allocation, milli) in [("usage", 9500.0), ("request", 30_000.0), ("real-limit", 10_000.0)] {
                world.best_effort_sample(allocation, milli);
            }
            world.seconds(1, 10.0, &[("runs", 4.0), ("job", 9.5)]);
        }
        let mut gone = std::mem::take(&mut world.evictor.names);
        gone.sort();
        gone.dedup();
        assert_eq!(gone, want, "{phase}");
    }
}

/// A job that cannot start is passed over when containers are stopped, and pays for itself all the same.
#[test]
fn nobody_goes_for_the_sake_of_a_pod_of_which_nothing_runs() {
    let line = "-feature-gates=BECPUEvict=true -cpu-evict-cool-time-seconds=1";
    let slo = json!({ "resourceUsedThresholdWithBE": { "enable": true,
        "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 80 } });
    let be = |name: &str, cpu: &str, priority| {
        let batch = [("kubernetes.io/batch-cpu", cpu)];
        pod(name).qos("BE").kube_qos("BestEffort").priority(priority).container("main", &batch, &[]).read()
    };
    for (outcome, want) in [(Outcome::NothingRuns, &["stuck"; 2][..]), (Outcome::Refused, &["stuck", "runs"])]
    {
        let pods = vec![be("runs", "10000", 5500), be("stuck", "20000", 5000)];
        let mut world = World::new(Version::V1, line, slo.clone(), pods);
        world.evictor.outcome = Some(outcome);
        for _ in 0..3 {
            for (allocation, milli) in [("usage", 9500.0), ("request", 30_000.0), ("real-limit", 10_000.0)] {
                world.best_effort_sample(allocation, milli);
            }
            world.seconds(1, 10.0, &[("runs", 9.5)]);
        }
        assert_eq!(world.evictor.names[..2], *want, "{outcome:?}");
    }
}

/// Who goes first is who uses most of his request now, not who did on average.
#[test]
fn the_newest_use_decides() {
    let line = "-feature-gates=BECPUEvict=true -cpu-evict-cool-time-seconds=30";
    let slo = json!({ "resourceUsedThresholdWithBE": { "enable": true, "cpuEvictTimeWindowSeconds": 60,
        "cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 61 } });
    let batch = [("kubernetes.io/batch-cpu", "8000")];
    let be = |name: &str| {
        pod(name).qos("BE").kube_qos("BestEffort").container("main", &batch, &batch).running().read()
    };
    let mut world = World::new(Version::V1, line, slo, vec![be("a"), be("b")]);
    for second in 1..=30 {
        for (allocation, milli) in [("usage", 8000.0), ("request", 16_000.0), ("real-limit", 8000.0)] {
            world.best_effort_sample(allocation, milli);
        }
        let (a, b) = if second < 30 { (6.0, 1.0) } else { (0.5, 3.0) };
        world.seconds(1, 7.0, &[("a", a), ("b", b)]);
    }
    assert_eq!(world.evictor.names, ["b"]);
}
