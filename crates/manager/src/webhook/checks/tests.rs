use koord_api::keys::pod::label::QUOTA_NAME;
use koord_api::keys::quota::label::{IS_PARENT, PARENT};
use serde_json::json;

use super::*;
use crate::fake::{FakeApi, Seen, refused};
use crate::flags;
use crate::webhook::review::{Operation, Resource, UserInfo};
use crate::world::Scope;

/// One node, one parent quota without children, and one pod that names it.
fn cluster(seen: &Seen) -> (u16, Value) {
    if seen.line.contains("watch=") {
        return refused(500, "no watch");
    }
    let meta = |name: &str, more: Value| {
        let mut meta = json!({"name": name, "uid": name, "resourceVersion": "1"});
        meta.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        meta
    };
    let path = seen.line.split(['?', ' ']).nth(1).unwrap_or_default();
    let pod = meta("p1", json!({"namespace": "ns", "labels": {QUOTA_NAME: "q"}}));
    let items = match path.rsplit('/').next().unwrap_or_default() {
        "p1" => {
            return (
                200,
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": pod}),
            );
        }
        "pods" => json!([{"metadata": pod, "spec": {"containers": []}}]),
        "nodes" => json!([{"metadata": meta("n1", json!({"labels": {"a": "1", "b": "2"}}))}]),
        "elasticquotas" => {
            let quota = |name: &str| {
                let labels = json!({"namespace": "qns", "labels": {IS_PARENT: "true"}});
                json!({"metadata": meta(name, labels), "spec": {"max": {"cpu": "1"}}})
            };
            // Lists of caches say how many objects they want; what came after them only others see.
            if seen.line.contains("limit=") {
                json!([quota("q")])
            } else {
                json!([quota("q"), quota("late")])
            }
        }
        "configmaps" => {
            let rules = json!({"enable": "true", "rules": "[{\"requiredLabels\":[\"team\"]}]"});
            json!([{"metadata": meta("pod-enhanced-validator-config", json!({"namespace": "koordinator-system"})), "data": rules}])
        }
        _ => json!([]),
    };
    (200, json!({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
}

struct Desk {
    checks: Checks,
    internal: Metrics,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Desk {
    async fn open(words: &[&str]) -> Desk {
        let flags::Request::Run(options) = flags::parse(words.iter().copied(), |_| None).unwrap() else {
            panic!("not a run");
        };
        let client = FakeApi::default().client(cluster);
        let scope = Scope {
            config_namespace: options.config_namespace.clone(),
            config_name: options.config_name.clone(),
            namespace: None,
        };
        let kit = KitMetrics::unregistered();
        let (world, workers) = World::new(&client, &scope, &kit);
        let (internal, tasks, stop) = (Metrics::bare(), TaskTracker::new(), CancellationToken::new());
        let mut checks = Checks::new(&world, &client, &Arc::new(*options), &kit, &internal);
        workers.start(&tasks, &stop);
        checks.start(&tasks, &stop);
        world.synced().await;
        checks.synced().await;
        Desk { checks, internal, tasks, stop }
    }

    async fn ask(&self, path: &str, request: Request) -> Answer {
        let handlers = self.checks.handlers();
        let (_, handler) = handlers.iter().find(|(served, _)| *served == path).expect("served");
        let mut aside = Aside { dice: &mut || 0, step: &mut |_, _| () };
        handler.answer(&Arc::new(request), &Arc::new(Facts::default()), &mut aside).await
    }

    async fn close(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // Whoever waits for the end still holds the caches.
        drop(self.checks);
    }
}

fn request(resource: &str, operation: Operation, object: Value, old_object: Value) -> Request {
    let resource = Resource { resource: resource.into(), ..Resource::default() };
    Request { resource, operation, object, old_object, namespace: "ns".into(), ..Request::default() }
}

fn message(answer: Answer) -> String {
    match answer.verdict {
        Verdict::Denied(denial) => denial.message,
        Verdict::Allowed => "allowed".to_owned(),
        Verdict::Changed(_) => "changed".to_owned(),
    }
}

#[tokio::test]
async fn handlers_see_the_cluster() {
    let desk = Desk::open(&["--feature-gates=EnablePodEnhancedValidator=true"]).await;
    let old = json!({"metadata": {"name": "q", "namespace": "qns"}});
    let delete = request("elasticquotas", Operation::Delete, Value::Null, old);
    let answer = message(desk.ask(paths::VALIDATE_QUOTA, delete).await);
    assert_eq!(answer, "delete quota failed, quota q has 1 child pods: p1");
    let child = json!({"metadata": {"name": "c"}, "spec": {"max": {"cpu": "3"}}});
    let create = request("elasticquotas", Operation::Create, child, Value::Null);
    assert_eq!(message(desk.ask(paths::MUTATE_QUOTA, create).await), "changed");

    let pod = json!({"metadata": {"name": "p", "labels": {QUOTA_NAME: "q"}}, "spec": {"containers": []}});
    let answer =
        desk.ask(paths::VALIDATE_POD, request("pods", Operation::Create, pod.clone(), Value::Null)).await;
    assert_eq!(message(answer), "pod can not be linked to a parentQuotaGroup,quota:q, pod:p");

    let entry = |name: &str, key: &str, value: &str| json!({"name": name, "nodeSelector": {"matchLabels": {key: value}}});
    let document = json!({"nodeConfigs": [entry("x", "a", "1"), entry("y", "b", "2")]}).to_string();
    let config = json!({"metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {"colocation-config": document}});
    let create = request("configmaps", Operation::Create, config, Value::Null);
    let answer = message(desk.ask(paths::VALIDATE_CONFIG_MAP, create).await);
    assert!(answer.contains("ExistNodeConfict") && answer.contains("n1"), "{answer}");

    assert_eq!(desk.checks.quotas()()["quotaInfoMap"]["q"]["isParent"], json!(true));
    let page = desk.internal.render(koord_kit::metrics::Format::Prometheus);
    let weight = r#"koord_manager_webhook_quota_shared_weight{elasticquota_name="c",resource_name="cpu"} 3"#;
    assert!(page.contains(weight), "{page}");
    desk.close().await;
}

/// A quota that another replica has just admitted is not held against whoever refers to it.
#[tokio::test]
async fn quotas_are_refused_by_what_the_server_says() {
    let desk = Desk::open(&[]).await;
    let child = |parent: &str| {
        let labels = json!({PARENT: parent});
        json!({"metadata": {"name": "c", "labels": labels}, "spec": {"max": {"cpu": "1"}}})
    };
    for (parent, filled, judged) in [
        ("late", "changed", "allowed"),
        (
            "never",
            "fill quota c failed, parent not exist",
            "c has parentName never but not find parentInfo in quotaInfoMap",
        ),
    ] {
        let create =
            |path| desk.ask(path, request("elasticquotas", Operation::Create, child(parent), Value::Null));
        assert_eq!(message(create(paths::MUTATE_QUOTA).await), filled, "{parent}");
        assert_eq!(message(create(paths::VALIDATE_QUOTA).await), judged, "{parent}");
    }
    desk.close().await;
}

#[tokio::test]
async fn bindings_are_counted_and_denied() {
    let words = [
        "--feature-gates=BindingAdmissionWebhook=true",
        "--binding-admission-user-name=koord-scheduler",
        "--binding-admission-namespaces=*",
    ];
    let desk = Desk::open(&words).await;
    let bind = |user: &str, pod: &str| Request {
        sub_resource: "binding".into(),
        name: pod.into(),
        user: UserInfo { username: user.into(), ..UserInfo::default() },
        ..request("pods", Operation::Create, json!({}), Value::Null)
    };
    let denied = "binding denied: username is not in the allowed list";
    assert_eq!(message(desk.ask(paths::VALIDATE_BINDING, bind("other", "p1")).await), denied);
    assert_eq!(message(desk.ask(paths::VALIDATE_BINDING, bind("koord-scheduler", "p1")).await), "allowed");
    let page = desk.internal.render(koord_kit::metrics::Format::Prometheus);
    for decision in ["denied", "allowed_username"] {
        let line =
            format!("koord_manager_webhook_binding_admission_decisions_total{{decision=\"{decision}\"}} 1");
        assert!(page.contains(&line), "{page}");
    }
    desk.close().await;
}
