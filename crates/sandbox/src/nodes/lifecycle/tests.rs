use super::*;

/// A pod on a node, and the time.
struct Life {
    pod: Value,
    habits: Habits,
    verdict: Verdict,
    now: Timestamp,
    start: Timestamp,
}

/// A pod with these parts of a spec and these annotations.
fn life(spec: Value, annotations: Value) -> Life {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "main", "image": "example.com/web:1"}]);
    }
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "generation": 1, "annotations": annotations},
        "spec": spec,
        "status": {"phase": "Pending", "qosClass": "BestEffort", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-05-01T07:59:00Z"}]},
    });
    let start: Timestamp = "2024-05-01T08:00:00Z".parse().unwrap();
    Life { pod, habits: Habits::default(), verdict: Verdict::Admitted, now: start, start }
}

impl Life {
    fn look(&mut self) -> Step {
        let kubelet = Kubelet {
            habits: &self.habits,
            host_ip: "10.0.0.1",
            pod_ip: "10.128.0.1",
            verdict: &self.verdict,
            now: self.now,
        };
        let step = step(&self.pod, &kubelet);
        if let Some(status) = &step.status {
            self.pod["status"] = status.clone();
        }
        step
    }

    /// Looks at the pod now and whenever it wants to be looked at, up to `seconds`: one line per write.
    fn watch(&mut self, seconds: i64) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..100 {
            let step = self.look();
            if step.status.is_some() || step.remove {
                told.push(self.tell(&step));
            }
            let end = self.start + SignedDuration::from_secs(seconds);
            match step.wake {
                Some(wake) if wake <= end && !step.remove => self.now = wake,
                _ => {
                    self.now = self.now.max(end);
                    return told;
                }
            }
        }
        panic!("does not come to rest: {told:#?}");
    }

    fn tell(&self, step: &Step) -> String {
        let status = &self.pod["status"];
        let mut text = format!(
            "{}s {}",
            self.now.as_second() - self.start.as_second(),
            status["phase"].as_str().unwrap_or("?")
        );
        for list in ["initContainerStatuses", "containerStatuses"] {
            for container in status[list].as_array().into_iter().flatten() {
                let state = container["state"].as_object().unwrap();
                let (name, body) = state.iter().next().unwrap();
                let word = match name.as_str() {
                    "terminated" => format!("exit {}", body["exitCode"]),
                    "waiting" => body["reason"].as_str().unwrap().to_owned(),
                    _ if container["ready"] == true => "ready".to_owned(),
                    _ => "running".to_owned(),
                };
                text.push_str(&format!(" {}={word}", container["name"].as_str().unwrap()));
                if container["restartCount"] != 0 {
                    text.push_str(&format!("#{}", container["restartCount"]));
                }
            }
        }
        if step.remove {
            text.push_str(" removed");
        }
        text
    }

    fn delete(&mut self, grace: i64) {
        let end = self.now + SignedDuration::from_secs(grace);
        self.pod["metadata"]["deletionTimestamp"] = json!(meta::format_time(end));
        self.pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }

    fn condition(&self, kind: &str) -> &Value {
        let list = self.pod["status"]["conditions"].as_array().unwrap();
        list.iter().find(|c| c["type"] == kind).unwrap()
    }
}

#[track_caller]
fn check(name: &str, spec: Value, annotations: Value, seconds: i64, want: &[&str]) -> Life {
    let mut life = life(spec, annotations);
    assert_eq!(life.watch(seconds), want, "{name}");
    life
}

#[test]
fn lives_of_pods() {
    let never = || json!({"restartPolicy": "Never"});
    check(
        "a service",
        json!({}),
        json!({}),
        3600,
        &["0s Pending main=ContainerCreating", "1s Running main=ready"],
    );
    check(
        "a job by default",
        never(),
        json!({}),
        60,
        &["0s Pending main=ContainerCreating", "1s Running main=ready", "11s Succeeded main=exit 0"],
    );
    check(
        "a job with a run time and a start delay",
        never(),
        json!({"sandbox.koord.sh/run-time": "30s", "sandbox.koord.sh/start-delay": "5s"}),
        60,
        &["0s Pending main=ContainerCreating", "5s Running main=ready", "35s Succeeded main=exit 0"],
    );
    check(
        "no delay, one write",
        json!({}),
        json!({"sandbox.koord.sh/start-delay": "0"}),
        60,
        &["0s Running main=ready"],
    );
    check(
        "a job that fails",
        never(),
        json!({"sandbox.koord.sh/run-time": "3s", "sandbox.koord.sh/exit-code": "3"}),
        60,
        &["0s Pending main=ContainerCreating", "1s Running main=ready", "4s Failed main=exit 3"],
    );
    check(
        "fails before its time, again and again",
        json!({"restartPolicy": "OnFailure"}),
        json!({"sandbox.koord.sh/fail-after": "20s"}),
        60,
        &[
            "0s Pending main=ContainerCreating",
            "1s Running main=ready",
            "21s Running main=ready#1",
            "41s Running main=CrashLoopBackOff#1",
            "51s Running main=ready#2",
        ],
    );
    check(
        "ready late",
        json!({"containers": [{"name": "main", "readinessProbe": {"initialDelaySeconds": 5}}]}),
        json!({"sandbox.koord.sh/ready-delay": "2s"}),
        60,
        &["0s Pending main=ContainerCreating", "1s Running main=running", "8s Running main=ready"],
    );
    check(
        "past its deadline",
        json!({"activeDeadlineSeconds": 10}),
        json!({}),
        60,
        &["0s Pending main=ContainerCreating", "1s Running main=ready", "10s Failed main=exit 137"],
    );
    check(
        "one container of two goes on",
        json!({"restartPolicy": "Never", "containers": [
            {"name": "b"}, {"name": "a", "restartPolicy": "Always"}]}),
        json!({"sandbox.koord.sh/run-time": "5s"}),
        8,
        &[
            "0s Pending a=ContainerCreating b=ContainerCreating",
            "1s Running a=ready b=ready",
            "6s Running a=ready#1 b=exit 0",
        ],
    );
}

#[test]
fn init_containers_and_sidecars_come_in_order() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "one"}, {"name": "side", "restartPolicy": "Always"}, {"name": "two"}],
    });
    let life = check(
        "init",
        spec,
        json!({"sandbox.koord.sh/init-time": "2s", "sandbox.koord.sh/run-time": "4s"}),
        60,
        &[
            "0s Pending one=PodInitializing side=PodInitializing two=PodInitializing main=PodInitializing",
            "1s Pending one=running side=PodInitializing two=PodInitializing main=PodInitializing",
            "3s Pending one=exit 0 side=ready two=running main=PodInitializing",
            "5s Running one=exit 0 side=ready two=exit 0 main=ready",
            "9s Succeeded one=exit 0 side=exit 0 two=exit 0 main=exit 0",
        ],
    );
    assert_eq!(life.condition("Initialized")["reason"], "PodCompleted");
}

#[test]
fn backoff_doubles_up_to_five_minutes() {
    let annotations = json!({"sandbox.koord.sh/fail-after": "1s", "sandbox.koord.sh/start-delay": "0"});
    let mut life = life(json!({}), annotations);
    let told = life.watch(2000);
    let waits: Vec<&String> = told.iter().filter(|line| line.contains("CrashLoopBackOff")).collect();
    assert_eq!(waits.len(), 11, "{told:#?}");
    let starts: Vec<i64> = told
        .iter()
        .filter(|line| line.contains("ready"))
        .map(|line| line.split('s').next().unwrap().parse().unwrap())
        .collect();
    let pauses: Vec<i64> = starts.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
    assert_eq!(pauses[..8], [0, 10, 20, 40, 80, 160, 300, 300]);
    let status = &life.pod["status"]["containerStatuses"][0];
    assert_eq!(status["lastState"]["terminated"]["reason"], "Error");
    assert_eq!(
        status["state"]["waiting"]["message"],
        "back-off 5m0s restarting failed container=main pod=p_ns(u1)"
    );
    assert_eq!(life.condition("Ready")["message"], "containers with unready status: [main]");
}

#[test]
fn a_status_as_kubelet_writes_it() {
    let spec = json!({"containers": [{"name": "main", "image": "example.com:5000/a/web:1",
        "resources": {"requests": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}]}]});
    let mut life = life(spec, json!({}));
    life.look();
    let waiting = &life.pod["status"];
    assert_eq!(waiting["startTime"], "2024-05-01T08:00:00Z");
    assert_eq!((&waiting["hostIP"], &waiting["hostIPs"]), (&json!("10.0.0.1"), &json!([{"ip": "10.0.0.1"}])));
    assert_eq!(waiting.get("podIP"), None);
    assert_eq!(
        waiting["containerStatuses"][0],
        json!({
            "name": "main", "image": "example.com:5000/a/web:1", "imageID": "", "ready": false, "started": false,
            "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "Disabled"}],
        })
    );
    life.now = life.start + SignedDuration::from_secs(1);
    life.pod["metadata"]["generation"] = json!(2);
    life.look();
    let status = &life.pod["status"];
    assert_eq!((&status["podIP"], &status["podIPs"]), (&json!("10.128.0.1"), &json!([{"ip": "10.128.0.1"}])));
    assert_eq!((&status["qosClass"], &status["observedGeneration"]), (&json!("BestEffort"), &json!(2)));
    let container = &status["containerStatuses"][0];
    assert_eq!(container["state"], json!({"running": {"startedAt": "2024-05-01T08:00:01Z"}}));
    assert_eq!(container["allocatedResources"], json!({"cpu": "1"}));
    assert!(container["containerID"].as_str().unwrap().starts_with("containerd://"));
    assert!(container["imageID"].as_str().unwrap().starts_with("example.com:5000/a/web@sha256:"));
    let kinds: Vec<&Value> = status["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(
        kinds,
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    );
    assert_eq!(life.condition("PodScheduled")["lastTransitionTime"], "2024-05-01T07:59:00Z", "kept");
    assert_eq!(life.condition("Initialized")["lastTransitionTime"], "2024-05-01T08:00:00Z", "kept");
    assert_eq!(
        *life.condition("Ready"),
        json!({"type": "Ready", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": "2024-05-01T08:00:01Z", "observedGeneration": 2})
    );
    assert_eq!(life.look().status, None, "nothing new");
}

#[test]
fn readiness_gates_hold_a_pod_back() {
    let mut life = life(json!({"readinessGates": [{"conditionType": "x/y"}]}), json!({}));
    life.watch(5);
    assert_eq!(life.condition("ContainersReady")["status"], "True");
    assert_eq!(
        life.condition("Ready")["message"],
        "corresponding condition of pod readiness gate \"x/y\" does not exist."
    );
    let gate = json!({"type": "x/y", "status": "True"});
    life.pod["status"]["conditions"].as_array_mut().unwrap().push(gate.clone());
    life.look();
    assert_eq!(life.condition("Ready")["status"], "True");
    assert_eq!(*life.condition("x/y"), gate);
}

#[test]
fn host_network_pods_have_the_nodes_address() {
    let mut life = life(json!({"hostNetwork": true}), json!({}));
    life.look();
    assert_eq!(life.pod["status"]["podIP"], "10.0.0.1");
}

#[test]
fn deleted_pods_end_and_go() {
    for (name, annotations, before, grace, want) in [
        ("running", json!({}), 5, 30, vec!["5s Succeeded main=exit 0 removed"]),
        (
            "slow",
            json!({"sandbox.koord.sh/stop-delay": "4s"}),
            5,
            30,
            vec!["9s Succeeded main=exit 0 removed"],
        ),
        (
            "too slow",
            json!({"sandbox.koord.sh/stop-delay": "1m"}),
            5,
            3,
            vec!["8s Failed main=exit 137 removed"],
        ),
        (
            "not started",
            json!({"sandbox.koord.sh/start-delay": "1m"}),
            5,
            30,
            vec!["5s Failed main=exit 137 removed"],
        ),
        (
            "has ended",
            json!({"sandbox.koord.sh/run-time": "1s"}),
            5,
            30,
            vec!["5s Succeeded main=exit 0 removed"],
        ),
    ] {
        let policy = if name == "has ended" { "Never" } else { "Always" };
        let mut life = life(json!({"restartPolicy": policy}), annotations);
        life.watch(before);
        life.delete(grace);
        assert_eq!(life.watch(120), want, "{name}");
        if name == "not started" {
            let exit = &life.pod["status"]["containerStatuses"][0]["state"]["terminated"];
            assert_eq!(exit["reason"], "ContainerStatusUnknown");
        }
        assert_eq!(life.condition("Ready")["status"], "False", "{name}");
        // What finalizers keep is not deleted again.
        life.pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert_eq!(life.look(), Step { is_over: true, ..Step::default() }, "{name}");
    }
}

#[test]
fn rejected_pods_say_why() {
    let mut life = life(json!({}), json!({}));
    let message = "Node didn't have enough resource: cpu, requested: 1, used: 0, capacity: 0".to_owned();
    life.verdict = Verdict::Rejected { reason: "OutOfcpu".to_owned(), message: message.clone() };
    let step = life.look();
    assert!(step.is_over && !step.remove);
    assert_eq!(
        life.pod["status"],
        json!({"phase": "Failed", "reason": "OutOfcpu", "message": format!("Pod was rejected: {message}"),
            "startTime": "2024-05-01T08:00:00Z", "qosClass": "BestEffort", "observedGeneration": 1})
    );
}

#[test]
fn speed_shortens_the_pods_own_time() {
    let mut life = life(json!({"restartPolicy": "Never"}), json!({"sandbox.koord.sh/run-time": "1h"}));
    life.habits.speed = 60.0;
    let told = life.watch(3600);
    assert_eq!(told.last().unwrap(), "60s Succeeded main=exit 0", "{told:?}");
    for speed in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300] {
        let habits = Habits { speed, ..Habits::default() }.sound();
        assert!(habits.speed.is_finite() && habits.speed > 0.0, "{speed}");
    }
}

#[test]
fn failures_come_by_chance_and_always_the_same() {
    let outcome = |uid: &str, seed: u64| {
        let annotations = json!({"sandbox.koord.sh/run-time": "10s", "sandbox.koord.sh/failure-rate": "30%",
            "sandbox.koord.sh/exit-code": "7"});
        let mut life = life(json!({"restartPolicy": "Never"}), annotations);
        life.pod["metadata"]["uid"] = json!(uid);
        life.habits.seed = seed;
        life.watch(60);
        life.pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64().unwrap()
    };
    let codes: Vec<i64> = (0..200).map(|i| outcome(&format!("u{i}"), 1)).collect();
    let failed = codes.iter().filter(|code| **code == 7).count();
    assert!((40..=80).contains(&failed), "{failed} of 200");
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 200 - failed);
    assert_eq!(codes, (0..200).map(|i| outcome(&format!("u{i}"), 1)).collect::<Vec<_>>());
    assert_ne!(codes, (0..200).map(|i| outcome(&format!("u{i}"), 2)).collect::<Vec<_>>());
}

#[test]
fn nothing_panics_on_odd_objects() {
    for pod in [
        json!({}),
        json!(null),
        json!({"spec": {"containers": [{}]}, "status": {"containerStatuses": 7, "conditions": "x"}}),
        json!({"metadata": {"deletionTimestamp": "x", "deletionGracePeriodSeconds": -5}, "status": []}),
        json!({"spec": {"activeDeadlineSeconds": i64::MAX, "containers": [{"name": "a"}]},
            "metadata": {"annotations": {"sandbox.koord.sh/run-time": "2540400h"}}}),
    ] {
        let mut life = life(json!({}), json!({}));
        life.pod = pod;
        life.look();
    }
}
