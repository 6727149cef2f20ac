//! Reserve, Permit, PreBind and PostBind, with plugins made for the test.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::cluster::{Cluster, Wish};
use crate::framework::{
    Code, Hooks, Nominating, Permission, Permit, PostBind, PreBind, Reason, Reserve, Slots, Status,
};
use crate::pod::Pod;

/// Answers as it is told to, and notes what it was asked.
#[derive(Default)]
struct Probe {
    log: Mutex<Vec<String>>,
    reserve: Mutex<Option<Status>>,
    permit: Mutex<Option<Result<Permission, Status>>>,
    plan: Mutex<Option<Status>>,
    annotation: Mutex<Option<&'static str>>,
    /// Lets this pod go when the next one asks.
    frees: Mutex<Option<&'static str>>,
}

const PROBE: &str = "P";

impl Probe {
    fn note(&self, what: &str, pod: &Pod) {
        self.log.lock().unwrap().push(format!("{what} {}", pod.key.name));
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

impl Reserve for Probe {
    fn reserve(&self, _: &mut Cluster, _: &mut Slots, pod: &Arc<Pod>, _: Row) -> Result<(), Status> {
        self.note("reserve", pod);
        self.reserve.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn unreserve(&self, _: &mut Cluster, _: &mut Slots, pod: &Arc<Pod>, _: Row) {
        self.note("unreserve", pod);
    }
}

impl Permit for Probe {
    fn permit(
        &self,
        cluster: &mut Cluster,
        _: &mut Slots,
        pod: &Arc<Pod>,
        _: Row,
    ) -> Result<Permission, Status> {
        self.note("permit", pod);
        if let Some(name) = *self.frees.lock().unwrap() {
            cluster.wish(Wish::Allow { uid: format!("uid-{name}").into(), plugin: PROBE });
        }
        self.permit.lock().unwrap().clone().unwrap_or(Ok(Permission::Go))
    }
}

impl PreBind for Probe {
    fn plan(
        &self,
        _: &Cluster,
        _: &Slots,
        _: &Arc<Pod>,
        _: Row,
        _: Time,
        plan: &mut command::BindPlan,
    ) -> Result<(), Status> {
        if let Some(value) = *self.annotation.lock().unwrap() {
            plan.annotations.insert("a".to_owned(), Some(value.to_owned()));
        }
        self.plan.lock().unwrap().clone().map_or(Ok(()), Err)
    }
}

impl PostBind for Probe {
    fn bound(&self, _: &mut Cluster, _: &mut Slots, pod: &Arc<Pod>, _: Row) {
        self.note("bound", pod);
    }
}

fn lab(probe: &Arc<Probe>) -> Lab {
    lab_by(probe, options())
}

fn lab_by(probe: &Arc<Probe>, mut options: Options) -> Lab {
    let hooks = Hooks::new(PROBE).reserve(probe.clone()).permit(probe.clone());
    let hooks = hooks.pre_bind(probe.clone()).post_bind(probe.clone());
    options.profiles.truncate(1);
    let mut framework = registry::framework(&options.profiles[0], Manner::default());
    framework.reserves.push(hooks.clone());
    framework.permits.push(hooks.clone());
    framework.pre_binds.push(hooks.clone());
    framework.post_binds.push(hooks);
    let mut lab = Lab::with(Engine::with_frameworks(&options, vec![framework]));
    lab.node("n1", "4");
    lab
}

fn two_reasons() -> Status {
    let reasons = ["gang not ready", "and more"].map(Reason::new).to_vec();
    Status { code: Code::Unschedulable, reasons, plugin: PROBE }
}

fn message(verdict: Option<Verdict>) -> String {
    match verdict {
        Some(Verdict::Unschedulable { message }) => format!("Unschedulable {message}"),
        Some(Verdict::Error { message }) => format!("SchedulerError {message}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refusals_after_the_search_read_as_of_one_node() {
    let text = "0/1 nodes are available: 1 and more, 1 gang not ready.";
    for (key, is_permit, status, want) in [
        ("scheduler-core#4.2.T18", true, two_reasons(), format!("Unschedulable {text}")),
        ("scheduler-core 3.2.12", false, two_reasons(), format!("Unschedulable {text}")),
        (
            "scheduler-core 4",
            true,
            Status::error(PROBE, "broken"),
            "SchedulerError running Permit plugin \"P\": broken".to_owned(),
        ),
        (
            "scheduler-core 4",
            false,
            Status::error(PROBE, "broken"),
            "SchedulerError running Reserve plugin \"P\": broken".to_owned(),
        ),
    ] {
        let probe = Arc::new(Probe::default());
        match is_permit {
            true => *probe.permit.lock().unwrap() = Some(Err(status)),
            false => *probe.reserve.lock().unwrap() = Some(status),
        }
        let mut lab = lab(&probe);
        lab.add("p", "1", json!({}));
        assert_eq!(message(lab.step()), want, "{key}");
        assert_eq!(probe.log().last().unwrap(), "unreserve p", "{key}");
        assert_eq!(lab.engine.cluster().pod_count(), 0, "{key}");
        assert!(lab.said().iter().all(|said| !said.starts_with("bind")), "{key}");
    }
}

#[test]
fn waits_at_permit_end_by_leave_refusal_time_or_deletion() {
    let wait = |asked| {
        let probe = Arc::new(Probe::default());
        *probe.permit.lock().unwrap() = Some(Ok(Permission::Wait(asked)));
        let mut lab = lab(&probe);
        lab.add("p", "1", json!({}));
        assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
        assert_eq!(lab.said(), ["status of p: nominated \"n1\""], "told while it waits");
        (probe, lab)
    };
    let (_, mut leave) = wait(Duration::from_secs(9));
    leave.engine.allow(leave.now, "uid-p", "other");
    assert_eq!(leave.said(), [""; 0]);
    leave.engine.allow(leave.now, "uid-p", PROBE);
    assert_eq!(leave.said(), ["bind p to n1"]);

    let (probe, mut late) = wait(Duration::from_millis(300));
    assert_eq!(late.engine.wake_at(late.now), Some(late.now + Duration::from_millis(300)));
    late.tick(1);
    let text = "0/1 nodes are available: 1 rejected due to timeout after waiting 300ms at plugin P.";
    let want =
        [format!("FailedScheduling p: {text}"), format!("status of p: Unschedulable: {text} nominated \"\"")];
    assert_eq!(late.said(), want, "scheduler-core#4.2.T19");
    assert_eq!(probe.log(), ["reserve p", "permit p", "unreserve p"]);

    let (_, mut long) = wait(Duration::from_secs(30 * 60));
    assert_eq!(
        long.engine.wake_at(long.now),
        Some(long.now + Duration::from_secs(15 * 60)),
        "scheduler-core#10.S27"
    );
    long.gone("p");
    assert_eq!((long.engine.cluster().pod_count(), long.engine.binding_count()), (0, 0));
    assert_eq!(long.said(), [""; 0], "nobody is left to be told");
}

#[test]
fn one_pod_frees_another() {
    let probe = Arc::new(Probe::default());
    *probe.permit.lock().unwrap() = Some(Ok(Permission::Wait(Duration::from_secs(9))));
    let mut lab = lab(&probe);
    lab.add("p", "1", json!({}));
    lab.add("q", "1", json!({}));
    lab.step();
    lab.said();
    *probe.permit.lock().unwrap() = None;
    *probe.frees.lock().unwrap() = Some("p");
    lab.step();
    assert_eq!(lab.said(), ["bind q to n1", "bind p to n1"]);
}

#[test]
fn writes_come_before_the_bind_and_refusals_speak_for_themselves() {
    let probe = Arc::new(Probe::default());
    *probe.annotation.lock().unwrap() = Some("v");
    let mut plain = lab(&probe);
    plain.add("p", "1", json!({}));
    plain.step();
    assert_eq!(plain.said(), ["prepare p on n1"]);
    plain.outcome("p", Outcome::Prepared);
    assert_eq!(plain.said(), ["bind p to n1"]);
    plain.outcome("p", Outcome::Prepared);
    assert_eq!(plain.said(), [""; 0], "an answer that comes twice");

    let probe = Arc::new(Probe::default());
    *probe.plan.lock().unwrap() = Some(Status::unschedulable(PROBE, "later"));
    let mut later = lab(&probe);
    later.add("p", "1", json!({}));
    later.step();
    let said = later.said();
    let want = ["FailedScheduling p: later", "status of p: Unschedulable: later"];
    assert_eq!(said, want, "scheduler-core#4.2.T24");
    later.node("n2", "4");
    assert_eq!(later.step(), None, "scheduler-core#4.2.T24: only backoff ends it");
    later.tick(2);
    assert!(later.step().is_some());
}

/// Notes that it was asked, and answers as it is told to.
struct Listener {
    name: &'static str,
    takes_over: bool,
    log: Arc<Mutex<Vec<&'static str>>>,
}

impl handlers::FailureHandler for Listener {
    fn handle(&self, _: &handlers::Failed<'_>) -> Option<Vec<Command>> {
        self.log.lock().unwrap().push(self.name);
        self.takes_over.then(Vec::new)
    }
}

#[test]
fn handlers_are_asked_until_one_takes_over() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut lab = Lab::new();
    for (name, takes_over, comes_first) in
        [("pre1", false, true), ("pre2", true, true), ("post1", true, false), ("post2", true, false)]
    {
        let listener = Listener { name, takes_over, log: log.clone() };
        lab.engine.handle_failures(Arc::new(listener), comes_first);
    }
    lab.add("p", "1", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Unschedulable { .. })));
    assert_eq!(*log.lock().unwrap(), ["pre1", "pre2", "post1"], "scheduler-core#9.12.X1");
    assert_eq!(lab.said(), [""; 0], "scheduler-core#9.12.X1: the default handler is not called");
}

#[test]
fn plugins_of_jobs_decide_about_the_promise() {
    let node = Row(1);
    for (key, plugin, want) in [
        ("scheduler-core#9.12.X2", "JobPreemptionSuccessPlugin", Nominating::Node(node)),
        ("scheduler-core#9.12.X3", "JobRejectPlugin", Nominating::Keep),
        ("scheduler-core#9.12.X4", "JobPreemptionFailurePlugin", Nominating::Clear),
        ("scheduler-core#9.12.X4", "Coscheduling", Nominating::Clear),
    ] {
        assert_eq!(handlers::nominating_after(plugin, node), want, "{key}");
    }
}

#[test]
fn a_pod_that_goes_to_another_scheduler_is_not_bound_by_us() {
    let probe = Arc::new(Probe::default());
    *probe.permit.lock().unwrap() = Some(Ok(Permission::Wait(Duration::from_secs(60))));
    let mut lab = lab(&probe);
    lab.add("p", "4", json!({}));
    assert!(matches!(lab.step(), Some(Verdict::Scheduled { .. })));
    lab.said();
    lab.add("p", "4", json!({"spec": {"schedulerName": "other"}}));
    lab.engine.allow(lab.now, "uid-p", PROBE);
    assert_eq!(lab.said(), [""; 0]);
    assert_eq!((lab.engine.binding_count(), lab.engine.cluster().pod_count()), (0, 0));
    assert_eq!(probe.log().last().unwrap(), "unreserve p");
    *probe.permit.lock().unwrap() = None;
    lab.add("q", "4", json!({}));
    lab.step();
    assert_eq!(lab.said(), ["bind q to n1"], "its place is free");
}

#[test]
fn whose_pod_it_is_by_then_is_not_asked_where_the_gate_is_off() {
    let probe = Arc::new(Probe::default());
    *probe.permit.lock().unwrap() = Some(Ok(Permission::Wait(Duration::from_secs(60))));
    let mut lab = lab_by(&probe, Options { checks_scheduler: false, ..options() });
    lab.add("p", "4", json!({}));
    lab.step();
    lab.said();
    lab.add("p", "4", json!({"spec": {"schedulerName": "other"}}));
    lab.engine.allow(lab.now, "uid-p", PROBE);
    assert_eq!(lab.said(), ["bind p to n1"]);
}

#[test]
fn plugins_hear_of_a_bind_once_it_is_done() {
    let probe = Arc::new(Probe::default());
    let mut lab = lab(&probe);
    lab.engine.set_stopwatch(Arc::new(crate::framework::timing::tests::Ticking::default()));
    lab.add("p", "1", json!({}));
    lab.step();
    assert!(!probe.log().contains(&"bound p".to_owned()), "it is on its way");
    points(&mut lab);
    lab.outcome("p", Outcome::Bound);
    assert_eq!(
        (probe.log(), points(&mut lab)),
        (vec!["bound p".to_owned()], vec!["PostBind Success".to_owned()])
    );
    lab.outcome("p", Outcome::Bound);
    assert_eq!(probe.log(), [""; 0], "once");
    lab.add("q", "1", json!({}));
    lab.step();
    lab.outcome("q", Outcome::BindFailed { message: "no".to_owned() });
    assert_eq!(probe.log().last().unwrap(), "unreserve q");
}

/// Points of one attempt, with how each ended.
fn points(lab: &mut Lab) -> Vec<String> {
    let measured = lab.engine.take_measured();
    let laps = measured.plugins.iter().flat_map(|(_, laps)| &laps.laps);
    laps.filter(|lap| lap.plugin.is_none()).map(|lap| format!("{} {}", lap.point, lap.status)).collect()
}

#[test]
fn what_takes_time_is_measured_when_somebody_brings_a_clock() {
    let probe = Arc::new(Probe::default());
    let mut lab = lab(&probe);
    lab.add("unmeasured", "1", json!({}));
    lab.step();
    assert_eq!(lab.engine.take_measured(), measure::Measured::default());
    lab.engine.set_stopwatch(Arc::new(crate::framework::timing::tests::Ticking::default()));
    lab.node("n2", "4");
    lab.add("p", "1", json!({}));
    let events: Vec<String> = lab.engine.take_measured().events.into_iter().map(|(event, _)| event).collect();
    assert_eq!(events, ["NodeAdd", "UnschedulablePodAdd"]);
    lab.step();
    assert_eq!(points(&mut lab), ["Filter Success", "Reserve Success", "Permit Success"], "from memory");
    // Dumps tell of every node, so plugins are asked.
    lab.engine.set_dumps(dump::Dumps { refusals: true, ..dump::Dumps::default() });
    *probe.permit.lock().unwrap() = Some(Ok(Permission::Wait(Duration::from_secs(60))));
    lab.add("asked", "1", json!({}));
    lab.step();
    let asked = [
        "PreFilter Success",
        "Filter Success",
        "PreScore Success",
        "Score Success",
        "Reserve Success",
        "Permit Wait",
    ];
    assert_eq!(points(&mut lab), asked);
    lab.tick(7);
    lab.engine.allow(lab.now, "uid-asked", PROBE);
    assert_eq!(lab.engine.take_measured().waits, [("Success", Duration::from_secs(7))]);
    lab.add("big", "9", json!({}));
    lab.step();
    assert_eq!(points(&mut lab), ["PreFilter Success", "Filter Unschedulable", "PostFilter Unschedulable"]);
}

#[test]
fn plugins_and_hints_are_measured_now_and_then() {
    let mut lab = lab(&Arc::new(Probe::default()));
    lab.engine.set_stopwatch(Arc::new(crate::framework::timing::tests::Ticking::default()));
    lab.engine.set_dumps(dump::Dumps { refusals: true, ..dump::Dumps::default() });
    for number in 0..60 {
        lab.add(&format!("big{number}"), "9", json!({}));
        lab.step();
    }
    let measured = lab.engine.take_measured();
    let (scheduler, laps) = &measured.plugins[0];
    assert_eq!(&**scheduler, "s");
    let of_plugins: Vec<_> = laps.laps.iter().filter(|lap| lap.plugin == Some("NodeResourcesFit")).collect();
    assert!(!of_plugins.is_empty() && of_plugins.len() < 60, "{}", of_plugins.len());
    assert!(of_plugins.iter().all(|lap| (lap.point, lap.status) == ("Filter", "Success")));
    assert_eq!(laps.asked[&("NodeResourcesFit", "Filter")], 60, "once for each node");
    assert_eq!(laps.asked[&("NodeName", "Filter")], 60);
    lab.node("n1", "5");
    let hints = lab.engine.take_measured().hints;
    assert!(!hints.is_empty() && hints.len() < 60, "{}", hints.len());
    assert!(hints.iter().all(|lap| lap.plugin == "NodeResourcesFit" && lap.hint == "QueueSkip"), "{hints:?}");
    assert!(hints.iter().all(|lap| lap.event == "NodeUpdateNodeAllocatable"), "{hints:?}");
}
