use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use koord_api::keys::pod::annotation::RESERVE_POD;
use koord_api::keys::pod::label::{PRIORITY, PRIORITY_CLASS, QOS_CLASS, QUOTA_NAME};
use koord_api::keys::resource::{GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED};
use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;
use crate::webhook::quota::charge::QuotaState;
use crate::webhook::quota::evaluator::{RetryPolicy, WriteFault};
use crate::webhook::quota::sketch::{Sketch as _, info, quota};
use crate::webhook::quota::{QuotaInfo, QuotaKey};

/// A pod in a few words: `LSR 9500 cpu=2,x=1 …`; more containers separated by spaces, `init:` and `overhead:` before a list.
fn pod(qos: &str, priority: Option<i32>, lists: &str) -> Pod {
    let mut spec = PodSpec { priority, ..PodSpec::default() };
    for list in lists.split_whitespace() {
        let (role, list) = list.split_once(':').unwrap_or(("", list));
        let pairs = list.split(',').filter_map(|pair| pair.split_once('='));
        let amounts: BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), Quantity(v.to_owned()))).collect();
        let resources = ResourceRequirements { requests: Some(amounts.clone()), ..Default::default() };
        let container = Container { name: "c".into(), resources: Some(resources), ..Container::default() };
        match role {
            "init" => spec.init_containers.get_or_insert_default().push(container),
            "overhead" => spec.overhead = Some(amounts),
            _ => spec.containers.push(container),
        }
    }
    let pod = Pod { spec: Some(spec), ..Pod::default() };
    if qos.is_empty() { pod } else { pod.with(QOS_CLASS, qos) }
}

trait With {
    fn with(self, label: &str, value: &str) -> Self;
}

impl With for Pod {
    fn with(mut self, label: &str, value: &str) -> Pod {
        self.metadata.labels.get_or_insert_default().insert(label.to_owned(), value.to_owned());
        self
    }
}

fn review<'r>(old: Option<&'r Pod>, new: &'r Pod) -> Review<'r> {
    Review { old, new, namespace: "ns", is_dry_run: false }
}

fn text(answer: Result<(), Denial>) -> String {
    answer.err().map_or("ok".to_owned(), |denial| {
        assert_eq!(denial.code, 400);
        denial.message
    })
}

fn judged(old: Option<&Pod>, new: &Pod, gates: PodGates) -> String {
    text(before_quota(review(old, new), gates, &Ledger::default(), &mut |_, _| ()))
}

const BATCH: &str = "kubernetes.io/batch-cpu=1000";
const RULE_2: &str = "labels.koordinator.sh/qosClass: Required value: must specify koordinator QoS BE with koordinator colocation resources";
const NO_CPU: &str =
    "pod.spec.containers[*].resources.requests: Required value: LSR Pod must declare the requested CPUs";

fn rule_3(qos: &str, class: &str) -> String {
    format!(
        "Pod: Forbidden: koordinator.sh/qosClass={qos} and priorityClass={class} cannot be used in combination"
    )
}

fn not_whole(amount: &str) -> String {
    format!(
        "pod.spec.containers[*].resources.requests: Invalid value: \"{amount}\": the requested CPUs of LSR Pod must be integer"
    )
}

#[test]
fn qos_and_priority_of_new_pods() {
    let ok = || "ok".to_owned();
    for (name, pod, want) in [
        ("manager#16.2.Q1", pod("BE", Some(5000), BATCH), ok()),
        ("manager#16.2.Q2", pod("LS", Some(5000), BATCH), RULE_2.to_owned()),
        ("manager#16.2.Q3", pod("BE", None, ""), rule_3("BE", "")),
        ("manager#16.2.Q4", pod("LSR", Some(9000), "cpu=2"), ok()),
        ("manager#16.2.Q5", pod("LSR", Some(9000), "cpu=1500m"), not_whole("1500m")),
        ("manager#16.2.Q6", pod("LSE", Some(5000), "cpu=2"), ok()),
        ("manager#16.2.Q7", pod("LSR", Some(9000), "cpu=500m cpu=1500m"), ok()),
        ("manager#16.2.Q11", pod("LS", None, "kubernetes.io/batch-cpu=0"), ok()),
        ("manager#16.2.Q12", pod("BE", None, "").with(PRIORITY_CLASS, "bogus"), rule_3("BE", "")),
        ("manager#16.2.Q13", pod("bogus", None, ""), ok()),
        (
            "manager#16.2.Q15",
            pod("LSR", Some(5000), BATCH),
            format!("[{RULE_2}, {}, {NO_CPU}]", rule_3("LSR", "koord-batch")),
        ),
        ("manager#16.2.Q16", pod("LS", Some(7000), "kubernetes.io/mid-cpu=1000"), ok()),
        ("manager#16.2.Q17", pod("LSR", Some(9000), "cpu=2 overhead:cpu=250m"), not_whole("2250m")),
        ("manager#16.2.Q18", pod("LSR", Some(9000), "cpu=2 init:cpu=2500m"), not_whole("2500m")),
        ("manager#16.2.Q19", pod("LSE", None, "cpu=1500m"), not_whole("1500m")),
        ("manager#16.2.Q20", pod("LSR", Some(9000), "memory=1Gi"), NO_CPU.to_owned()),
        ("manager#16.2.Q22", pod("", Some(5500), BATCH), RULE_2.to_owned()),
    ] {
        assert_eq!(judged(None, &pod, PodGates::default()), want, "{name}");
    }
}

#[test]
fn qos_and_priority_of_changed_pods() {
    let immutable =
        |path: &str, value: &str| format!("{path}: Invalid value: \"{value}\": field is immutable");
    let qos = "labels.koordinator.sh/qosClass";
    let sub = "labels.koordinator.sh/priority";
    let skip = PodGates { skip_priority: true, ..PodGates::default() };
    for (name, old, new, gates, want) in [
        (
            "manager#16.2.Q8",
            pod("LS", Some(5000), ""),
            pod("BE", Some(5000), ""),
            PodGates::default(),
            immutable(qos, "BE"),
        ),
        (
            "manager#16.2.Q9",
            pod("", Some(5000), ""),
            pod("", Some(5999), ""),
            PodGates::default(),
            "ok".to_owned(),
        ),
        (
            "manager#16.2.Q10",
            pod("", None, "").with(PRIORITY, "1"),
            pod("", None, "").with(PRIORITY, "2"),
            PodGates::default(),
            immutable(sub, "2"),
        ),
        (
            "manager#16.2.Q10 gate",
            pod("", None, "").with(PRIORITY, "1"),
            pod("", None, "").with(PRIORITY, "2"),
            skip,
            "ok".to_owned(),
        ),
        (
            "manager#16.2.Q14",
            pod("LSR", Some(9000), "cpu=1"),
            pod("BE", Some(9000), "cpu=1").with(PRIORITY, "2"),
            PodGates::default(),
            format!("[{}, {}, {}]", immutable(qos, "BE"), immutable(sub, "2"), rule_3("BE", "koord-prod")),
        ),
        (
            "manager#16.2.Q21",
            pod("", Some(9500), ""),
            pod("", Some(9500), "").with(PRIORITY_CLASS, "koord-batch"),
            PodGates::default(),
            immutable("spec.priority", "koord-batch"),
        ),
        (
            "a pending pod that was never right",
            pod("LSR", Some(3500), "cpu=1"),
            pod("LSR", Some(3500), "cpu=1"),
            PodGates::default(),
            rule_3("LSR", "koord-free"),
        ),
    ] {
        assert_eq!(judged(Some(&old), &new, gates), want, "{name}");
    }
}

/// One quota q that holds ten cpus.
#[derive(Default)]
struct Store {
    usage: Mutex<String>,
}

impl QuotaStore for Arc<Store> {
    fn cached(&self, key: &QuotaKey) -> Option<QuotaState> {
        let child_request = self.usage.lock().unwrap().clone();
        let max = [("cpu".to_owned(), "10".parse().unwrap())].into();
        Some(QuotaState { key: key.clone(), max, child_request, ..QuotaState::default() })
    }

    async fn fresh(&self, key: &QuotaKey) -> Result<QuotaState, String> {
        self.cached(key).ok_or_default()
    }

    async fn write(&self, quota: &QuotaState, child_request: &str) -> Result<QuotaState, WriteFault> {
        *self.usage.lock().unwrap() = child_request.to_owned();
        Ok(quota.clone())
    }
}

trait OkOrDefault<T> {
    fn ok_or_default(self) -> Result<T, String>;
}

impl<T> OkOrDefault<T> for Option<T> {
    fn ok_or_default(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

/// All steps on one pod: the answer, and how far it came.
async fn all_steps(review: Review<'_>, gates: PodGates, store: &Arc<Store>) -> (String, Vec<&'static str>) {
    let mut topology = Topology::default();
    let quotas: [QuotaInfo; 2] = [info(&quota("q")), info(&quota("parent").parent(true))];
    quotas.into_iter().for_each(|info| topology.show(info));
    let rules = [("enable", "true"), ("rules", r#"[{"name":"r","requiredLabels":["team"]}]"#)];
    let rules = rules.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
    let rules = enhanced::Rules::parse(&rules).unwrap();
    let evaluator = Evaluator::new(store.clone(), RetryPolicy::default());
    let topology = RwLock::new(topology);
    let mut seen = Vec::new();
    let mut done = |plugin, _| seen.push(plugin);
    let answer =
        validate(review, gates, &topology, &evaluator, &rules, Timestamp::UNIX_EPOCH, &mut done).await;
    (text(answer), seen)
}

#[tokio::test]
async fn steps_in_order_and_the_first_fault_decides() {
    let everything = PodGates {
        quota: QuotaGates { admission: true, ..QuotaGates::default() },
        device: true,
        enhanced: true,
        skip_priority: false,
    };
    let base = |lists: &str| pod("LS", Some(9500), lists).with(QUOTA_NAME, "q").with("team", "x");
    let mut reserve = base("cpu=1").with(QOS_CLASS, "LSR");
    reserve.metadata.annotations = Some([(RESERVE_POD.to_owned(), "true".to_owned())].into());
    let no_team = |lists: &str| pod("LS", Some(9500), lists).with(QUOTA_NAME, "q");
    let over = "exceeded quota: qns/q, requested: cpu=11, used: , limited: cpu=10";
    let no_memory =
        "pod.spec.containers[*].resources.requests: Forbidden: GPU memory and GPU memory ratio all is zero";
    for (name, pod, want, steps, usage) in [
        (
            "reserve pod",
            reserve,
            "annotations.scheduling.koordinator.sh/reserve-pod: Forbidden: cannot set in annotations"
                .to_owned(),
            1,
            "",
        ),
        ("priority", base("").with(QOS_CLASS, "LSR").with(QUOTA_NAME, "parent"), NO_CPU.to_owned(), 2, ""),
        (
            "membership",
            base("cpu=11").with(QUOTA_NAME, "parent"),
            "pod can not be linked to a parentQuotaGroup,quota:parent, pod:".to_owned(),
            3,
            "",
        ),
        (
            "evaluation before device and labels",
            no_team("cpu=11,koordinator.sh/gpu.shared=1"),
            over.to_owned(),
            4,
            "",
        ),
        (
            "device before labels, not counted",
            no_team("cpu=1,koordinator.sh/gpu.shared=1"),
            no_memory.to_owned(),
            5,
            "",
        ),
        ("labels, not counted", no_team("cpu=1"), "required label 'team' is missing".to_owned(), 6, ""),
        ("counted", base("cpu=1"), "ok".to_owned(), 6, r#"{"cpu":"1"}"#),
    ] {
        let store = Arc::<Store>::default();
        let (answer, seen) = all_steps(review(None, &pod), everything, &store).await;
        assert_eq!(answer, want, "{name}");
        let order = [
            plugin::RESERVATION,
            plugin::COLOCATION,
            plugin::QUOTA_META,
            plugin::QUOTA_EVALUATION,
            plugin::DEVICE,
            plugin::ENHANCED,
        ];
        assert_eq!(seen, order[..steps], "{name}");
        assert_eq!(*store.usage.lock().unwrap(), usage, "{name}");
    }
    let store = Arc::<Store>::default();
    let dry = base("cpu=1");
    let (answer, _) = all_steps(Review { is_dry_run: true, ..review(None, &dry) }, everything, &store).await;
    assert_eq!(
        (answer.as_str(), store.usage.lock().unwrap().as_str()),
        ("ok", ""),
        "a dry run writes nothing"
    );
    let bare = pod("", None, "koordinator.sh/gpu=150");
    let (answer, _) = all_steps(review(None, &bare), PodGates::default(), &store).await;
    assert_eq!(answer, "ok", "all gates off");
}

#[tokio::test]
async fn device_resources() {
    let gates = PodGates { device: true, ..PodGates::default() };
    let path = "pod.spec.containers[*].resources.requests";
    let one = |text: &str| format!("{path}: {text}");
    let two = |a: &str, b: &str| format!("[{path}: {a}, {path}: {b}]");
    for (name, requests, want) in [
        (
            "manager#16.5.GV1",
            [(GPU, "100"), (GPU_SHARED, "1")].as_slice(),
            one("Forbidden: Forbidden declare GPU and GPU share at same time"),
        ),
        (
            "manager#16.5.GV2",
            &[(GPU, "150")],
            one("Invalid value: \"150\": the requested GPU must be percentage of 100"),
        ),
        (
            "manager#16.5.GV3",
            &[(GPU_SHARED, "0"), (GPU_CORE, "1")],
            two(
                "Invalid value: \"0\": the requested GPU must be greater than zero",
                "Forbidden: GPU memory and GPU memory ratio all is zero",
            ),
        ),
        (
            "manager#16.5.GV4",
            &[(GPU_SHARED, "1"), (GPU_MEMORY, "1Gi"), (GPU_MEMORY_RATIO, "10")],
            one("Forbidden: declare GPU memory and GPU memory ratio at same time"),
        ),
        (
            "manager#16.5.GV5",
            &[(GPU_SHARED, "3"), (GPU_CORE, "100"), (GPU_MEMORY_RATIO, "100")],
            two(
                "Invalid value: \"100\": the requested gpuCore must multiple of shared",
                "Invalid value: \"100\": the requested gpuMemoryRatio must multiple of shared",
            ),
        ),
        (
            "manager#16.5.GV6",
            &[(GPU_SHARED, "2"), (GPU_CORE, "100"), (GPU_MEMORY_RATIO, "100")],
            "ok".to_owned(),
        ),
    ] {
        let list: Vec<_> = requests.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        let pod = pod("", None, &list.join(","));
        let (answer, _) = all_steps(review(None, &pod), gates, &Default::default()).await;
        assert_eq!(answer, want, "{name}");
    }
}

fn validator(gates: PodGates) -> Arc<PodValidator<Arc<Store>>> {
    Arc::new(PodValidator {
        gates,
        topology: Arc::default(),
        evaluator: Evaluator::new(Arc::<Store>::default(), RetryPolicy::default()),
        rules: enhanced::Keeper::new(std::time::Duration::from_secs(300)),
        read_rules: Box::new(|| {
            let rules = [("enable", "true"), ("rules", r#"[{"requiredLabels":["team"]}]"#)];
            Some(rules.map(|(key, text)| (key.to_owned(), text.to_owned())).into())
        }),
        clock: || Timestamp::UNIX_EPOCH,
    })
}

fn request(operation: Operation, old: Option<&Pod>, new: &Pod) -> Arc<Request> {
    let resource = crate::webhook::review::Resource { resource: "pods".into(), ..Default::default() };
    let tree = |pod: &Pod| serde_json::to_value(pod).unwrap();
    Arc::new(Request {
        operation,
        resource,
        object: tree(new),
        old_object: old.map_or(Value::Null, tree),
        namespace: "ns".into(),
        ..Request::default()
    })
}

#[tokio::test]
async fn requests_are_answered_at_once_or_later() {
    use crate::webhook::facts::Facts;
    use crate::webhook::handler::Aside;
    let counting = QuotaGates { admission: true, ..QuotaGates::default() };
    for gates in [PodGates::default(), PodGates { quota: counting, ..PodGates::default() }] {
        let handler = validator(gates).handler();
        assert_eq!(matches!(handler, Handler::Later(_)), gates.quota.admission);
        let heard = Mutex::new(Vec::new());
        let ask = async |request: Arc<Request>| {
            let mut step = |name, is_fine| heard.lock().unwrap().push((name, is_fine));
            let mut aside = Aside { dice: &mut || 0, step: &mut step };
            handler.answer(&request, &Arc::new(Facts::default()), &mut aside).await
        };
        let message = |answer: Answer| match answer.verdict {
            Verdict::Denied(denial) => denial.message,
            verdict => format!("{verdict:?}"),
        };
        let (ls, be) = (pod("LS", Some(9500), ""), pod("BE", None, ""));
        assert_eq!(ask(request(Operation::Create, None, &ls)).await, Answer::allow());
        let steps = [
            plugin::RESERVATION,
            plugin::COLOCATION,
            plugin::QUOTA_META,
            plugin::QUOTA_EVALUATION,
            plugin::DEVICE,
            plugin::ENHANCED,
        ];
        assert_eq!(*heard.lock().unwrap(), steps.map(|step| (step, true)), "steps are timed either way");
        assert_eq!(message(ask(request(Operation::Create, None, &be)).await), rule_3("BE", ""));
        let changed =
            message(ask(request(Operation::Update, Some(&ls), &pod("LSE", Some(9500), "cpu=1"))).await);
        assert!(changed.contains("field is immutable"), "{changed}");
        assert_eq!(ask(request(Operation::Delete, Some(&be), &be)).await, Answer::allow());
        let mut status = (*request(Operation::Update, Some(&be), &be)).clone();
        status.sub_resource = "status".into();
        assert_eq!(ask(Arc::new(status)).await, Answer::allow());
        let mut broken = (*request(Operation::Create, None, &be)).clone();
        broken.object = serde_json::json!({"spec": 1});
        assert!(message(ask(Arc::new(broken)).await).starts_with("the object is no pod"));
        let odd = ask(request(Operation::Create, None, &pod("LSE", Some(5500), "cpu=1"))).await;
        assert_eq!(
            (odd.verdict, odd.warnings.len()),
            (Verdict::Allowed, 1),
            "allowed, but not meant to be used"
        );
    }
    let handler = validator(PodGates { enhanced: true, ..PodGates::default() }).handler();
    let mut aside = Aside { dice: &mut || 0, step: &mut |_, _| () };
    let bare = request(Operation::Create, None, &pod("", None, ""));
    let answer = handler.answer(&bare, &Arc::new(Facts::default()), &mut aside).await;
    assert_eq!(answer, Answer::deny(400, "required label 'team' is missing"));
}
