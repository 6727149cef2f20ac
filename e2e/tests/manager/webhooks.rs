//! Admission as the API server asks for it.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use crate::place::{CONFIG, HOME, NODES, PROFILES, Place, eventually, version};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const RESERVATIONS: &str = "/apis/scheduling.koordinator.sh/v1alpha1/reservations";

pub(crate) async fn check_all(place: &Place) -> Result<()> {
    pods_follow_their_profile(place).await.context("pods follow their profile")?;
    pods_that_cannot_be_are_refused(place).await.context("pods that cannot be are refused")?;
    a_broken_profile_harms_its_own(place).await.context("a broken profile harms its own")?;
    quotas_are_filled_and_judged(place).await.context("quotas are filled and judged")?;
    reservations_follow_profiles(place).await.context("reservations follow profiles")?;
    nodes_are_amplified(place).await.context("nodes are amplified")?;
    strategies_are_judged(place).await.context("strategies are judged")
}

/// Priority classes that profiles name, and a profile for pods of batch jobs in namespaces that want it.
pub(crate) async fn prepare(place: &Place) -> Result<()> {
    for (name, value) in [("koord-batch", 5500), ("koord-prod", 9500)] {
        place.post(CLASSES, &json!({"metadata": {"name": name}, "value": value})).await?;
    }
    let profile = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
    "metadata": {"name": "colocation"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"koordinator.sh/enable-colocation": "true"}},
        "selector": {"matchLabels": {"app": "job"}},
        "qosClass": "BE", "priorityClassName": "koord-batch", "koordinatorPriority": 1000,
        "schedulerName": "koord-scheduler", "labels": {"touched": "yes"},
        "annotations": {"touched/by": "colocation"},
    }});
    place.post(PROFILES, &profile).await?;
    place.make_namespace("jobs", &json!({"koordinator.sh/enable-colocation": "true"})).await?;
    place.make_namespace("shop", &json!({})).await?;
    eventually("the profile is known to whoever answers", async || {
        let made = place.post("/api/v1/namespaces/jobs/pods?dryRun=All", &pod("probe", "job")).await?;
        Ok((made["metadata"]["labels"]["touched"] == "yes").then_some(()))
    })
    .await
}

/// A pod that asks for 1.5 CPUs.
pub(crate) fn pod(name: &str, app: &str) -> Value {
    let amounts = json!({"cpu": "1500m", "memory": "1Gi"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "i",
                "resources": {"requests": amounts, "limits": amounts}}]}})
}

fn denied_by(webhook: &str, text: &str) -> String {
    format!("admission webhook \"{webhook}.koordinator.sh\" denied the request: {text}")
}

async fn pods_follow_their_profile(place: &Place) -> Result<()> {
    let pods = "/api/v1/namespaces/jobs/pods";
    // A dry run shows what would be, and leaves nothing.
    let shown = place.post(&format!("{pods}?dryRun=All"), &pod("dry", "job")).await?;
    ensure!(shown["spec"]["priority"] == 5500, "{shown}");
    ensure!(place.find(&format!("{pods}/dry")).await?.is_none(), "a dry run left a pod");
    let made = place.post(pods, &pod("job", "job")).await?;
    let labels = json!({"app": "job", "touched": "yes", "koordinator.sh/qosClass": "BE",
        "koordinator.sh/priority": "1000"});
    ensure!(made["metadata"]["labels"] == labels, "{}", made["metadata"]);
    let amounts = json!({"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"});
    let resources = json!({"requests": amounts, "limits": amounts});
    ensure!(made["spec"]["containers"][0]["resources"] == resources, "{}", made["spec"]);
    ensure!(made["spec"]["schedulerName"] == "koord-scheduler", "{}", made["spec"]);
    ensure!(made["spec"]["priorityClassName"] == "koord-batch" && made["spec"]["priority"] == 5500);
    let annotations = &made["metadata"]["annotations"];
    ensure!(annotations["touched/by"] == "colocation", "{annotations}");
    let record = annotations["node.koordinator.sh/extended-resource-spec"].as_str().context("a record")?;
    let record: Value = serde_json::from_str(record)?;
    ensure!(record["containers"]["main"] == resources, "{record}");
    // What is written again as it is changes nothing.
    let path = format!("{pods}/job");
    let again = place.put(&path, &made).await?;
    ensure!(version(&again) == version(&made), "an update without a change was written");
    // What nobody looks at may change, what a class rests on may not.
    place.patch(&path, &json!({"metadata": {"annotations": {"note": "x"}}})).await?;
    let change = json!({"metadata": {"labels": {"koordinator.sh/qosClass": "LS"}}});
    let refusal = place.refused(Method::PATCH, &path, &change).await?;
    let text = "labels.koordinator.sh/qosClass: Invalid value: \"LS\": field is immutable";
    ensure!(refusal.text.contains(text), "{refusal:?}");
    // Who is not selected is left alone, to the last field.
    for (namespace, name, app) in [("jobs", "web", "web"), ("shop", "other-namespace", "job")] {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let made = place.post(&path, &pod(name, app)).await?;
        ensure!(made["metadata"]["labels"] == json!({"app": app}), "{}", made["metadata"]);
        ensure!(made["metadata"].get("annotations").is_none(), "{}", made["metadata"]);
        ensure!(made["spec"]["schedulerName"] == "default-scheduler", "{}", made["spec"]);
        place.delete(&format!("{path}/{name}")).await?;
    }
    place.delete(&path).await
}

async fn pods_that_cannot_be_are_refused(place: &Place) -> Result<()> {
    let pods = "/api/v1/namespaces/shop/pods";
    let mut wrong = pod("wrong", "web");
    wrong["metadata"]["labels"]["koordinator.sh/qosClass"] = json!("BE");
    wrong["spec"]["priorityClassName"] = json!("koord-prod");
    let refusal = place.refused(Method::POST, pods, &wrong).await?;
    let text = "Pod: Forbidden: koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination";
    ensure!(refusal.code == 400 && refusal.text == denied_by("vpod", text), "{refusal:?}");
    let mut part_core = pod("part-core", "web");
    part_core["metadata"]["labels"]["koordinator.sh/qosClass"] = json!("LSR");
    part_core["spec"]["priorityClassName"] = json!("koord-prod");
    let refusal = place.refused(Method::POST, pods, &part_core).await?;
    ensure!(refusal.text.contains("pod.spec.containers[*].resources.requests: Invalid value"), "{refusal:?}");
    Ok(())
}

async fn a_broken_profile_harms_its_own(place: &Place) -> Result<()> {
    let broken = json!({"apiVersion": "config.koordinator.sh/v1alpha1", "kind": "ClusterColocationProfile",
        "metadata": {"name": "broken"},
        "spec": {"selector": {"matchLabels": {"app": "broken"}}, "priorityClassName": "ghost"}});
    place.post(PROFILES, &broken).await?;
    // It is told as soon as it is there, and by whom it harms.
    place
        .told("default", "broken", "ProfileUnusable", "PriorityClass.scheduling.k8s.io \"ghost\" not found")
        .await?;
    let refusal =
        place.refused(Method::POST, "/api/v1/namespaces/shop/pods", &pod("victim", "broken")).await?;
    let text = "PriorityClass.scheduling.k8s.io \"ghost\" not found";
    ensure!(refusal.code == 500 && refusal.text.contains(text), "{refusal:?}");
    place.told("default", "broken", "ProfileUnusable", "pod shop/victim was denied").await?;
    // Others do not notice, and neither do those without whom nothing runs.
    for (namespace, name, app) in
        [("shop", "bystander", "web"), ("kube-system", "proxy", "broken"), (HOME, "koordlet", "broken")]
    {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        place.post(&path, &pod(name, app)).await?;
        place.delete(&format!("{path}/{name}")).await?;
    }
    place.delete(&format!("{PROFILES}/broken")).await?;
    eventually("its pods are admitted again", async || {
        let pods = "/api/v1/namespaces/shop/pods?dryRun=All";
        Ok(place.ask(Method::POST, pods, Some(&pod("victim", "broken"))).await?.ok())
    })
    .await?;
    Ok(())
}

fn quota(name: &str, parent: Option<&str>, is_parent: bool, min: &str) -> Value {
    let mut labels = json!({"quota.scheduling.koordinator.sh/is-parent": is_parent.to_string()});
    if let Some(parent) = parent {
        labels["quota.scheduling.koordinator.sh/parent"] = json!(parent);
    }
    json!({"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": labels}, "spec": {"min": {"cpu": min}, "max": {"cpu": "40"}}})
}

async fn quotas_are_filled_and_judged(place: &Place) -> Result<()> {
    let quotas = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/shop/elasticquotas";
    let shown = place.post(&format!("{quotas}?dryRun=All"), &quota("team", None, true, "10")).await?;
    let parent = "quota.scheduling.koordinator.sh/parent";
    ensure!(shown["metadata"]["labels"][parent] == "koordinator-root-quota", "{shown}");
    ensure!(place.find(&format!("{quotas}/team")).await?.is_none(), "a dry run left a quota");
    let team = place.post(quotas, &quota("team", None, true, "10")).await?;
    let weight = &team["metadata"]["annotations"]["quota.scheduling.koordinator.sh/shared-weight"];
    ensure!(weight == r#"{"cpu":"40"}"#, "{team}");
    place.post(quotas, &quota("team-a", Some("team"), false, "6")).await?;
    let refusal = place.refused(Method::POST, quotas, &quota("team-b", Some("team"), false, "6")).await?;
    let text = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: team";
    ensure!(refusal.code == 400 && refusal.text == denied_by("velasticquota", text), "{refusal:?}");
    // What was refused holds no room.
    place.post(quotas, &quota("team-b", Some("team"), false, "4")).await?;
    let refusal = place.refused(Method::DELETE, &format!("{quotas}/team"), &json!({})).await?;
    let text = "delete quota failed, quota team has 2 child quotas";
    ensure!(refusal.text == denied_by("velasticquota", text), "{refusal:?}");
    let refusal = place
        .refused(Method::PATCH, &format!("{quotas}/team-a"), &json!({"spec": {"min": {"cpu": "-1"}}}))
        .await?;
    ensure!(refusal.text.contains("team-a quota.Spec.Min's value < 0, in dimensions :[cpu]"), "{refusal:?}");
    // What is applied again changes nothing, though the webhook has added to it.
    let mut applied = Vec::new();
    for _ in 0..2 {
        let made = place.apply(&format!("{quotas}/applied"), &quota("applied", None, true, "1")).await?;
        applied.push(version(&made).to_owned());
    }
    ensure!(applied[0] == applied[1], "{applied:?}");
    // A parent and its children one after the other, as from one file: whichever replica is asked knows the parent.
    for number in 0..10 {
        let (parent, child) = (format!("tree-{number}"), format!("tree-{number}-leaf"));
        place.post(quotas, &quota(&parent, None, true, "2")).await?;
        place.post(quotas, &quota(&child, Some(&parent), false, "1")).await?;
        place.patch(&format!("{quotas}/{child}"), &json!({"spec": {"min": {"cpu": "2"}}})).await?;
        place.delete(&format!("{quotas}/{child}")).await?;
        place.delete(&format!("{quotas}/{parent}")).await?;
    }
    Ok(())
}

async fn reservations_follow_profiles(place: &Place) -> Result<()> {
    let reservation = json!({"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
        "metadata": {"name": "held", "labels": {"app": "job"}},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "job"}}}], "ttl": "1h"}});
    let made = place.post(RESERVATIONS, &reservation).await?;
    ensure!(made["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE", "{made}");
    ensure!(made["spec"]["template"]["spec"]["schedulerName"] == "koord-scheduler", "{made}");
    place.delete(&format!("{RESERVATIONS}/held")).await
}

/// By the strategy: a ratio that nobody's strategy wants is taken off a node again.
async fn nodes_are_amplified(place: &Place) -> Result<()> {
    let amplified = json!({"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}}).to_string();
    let strategies =
        json!({"colocation-config": r#"{"enable":true}"#, "resource-amplification-config": amplified});
    place.configure(&strategies).await?;
    place.make_node("amplified", &json!({})).await?;
    let (node, status) = (format!("{NODES}/amplified"), format!("{NODES}/amplified/status"));
    eventually("the node carries the ratio", async || {
        let node = place.get(&node).await?;
        let ratio = &node["metadata"]["annotations"]["node.koordinator.sh/resource-amplification-ratio"];
        Ok((ratio == r#"{"cpu":1.50}"#).then_some(()))
    })
    .await?;
    let beat = json!({"status": {"allocatable": {"cpu": "9"}}});
    let made = place.patch(&status, &beat).await?;
    ensure!(made["status"]["allocatable"]["cpu"] == "13500m", "{made}");
    ensure!(made["status"]["allocatable"]["memory"] == "20Gi", "{made}");
    let raw = &made["metadata"]["annotations"]["node.koordinator.sh/raw-allocatable"];
    ensure!(raw.as_str().is_some_and(|raw| raw.contains(r#""cpu":"9""#)), "{raw}");
    place.delete(&node).await?;
    place.delete(CONFIG).await
}

/// The ConfigMap with the label that lets the webhook look at it, and the labels of nodes.
async fn strategies_are_judged(place: &Place) -> Result<()> {
    let maps = format!("/api/v1/namespaces/{HOME}/configmaps");
    let map = |namespace_name: &str, text: &str| {
        json!({"metadata": {"name": namespace_name,
                "labels": {"koordinator.sh/configmap-type": "slo-controller-config"}},
            "data": {"cpu-burst-config": text}})
    };
    let refusal = place.refused(Method::POST, &maps, &map("slo-controller-config", "{bad")).await?;
    let text = "Failed to parse CpuBurst config in configmap koordinator-system/slo-controller-config";
    ensure!(refusal.text.contains(text), "{refusal:?}");
    // A stranger with the same label is nobody's business.
    place.post(&maps, &map("strangers", "{bad")).await?;
    place.delete(&format!("{maps}/strangers")).await?;
    let item = |name: &str, key: &str| json!({"name": name, "nodeSelector": {"matchLabels": {key: "yes"}}, "policy": "auto"});
    let two = json!({"clusterStrategy": {"policy": "none"}, "nodeStrategies": [item("one", "a"), item("two", "b")]});
    place.post(&maps, &map("slo-controller-config", &two.to_string())).await?;
    place.make_node("torn", &json!({"a": "yes"})).await?;
    let both = json!({"metadata": {"labels": {"b": "yes"}}});
    // The ConfigMap has to have arrived at whoever is asked.
    let refusal = eventually("a node that two strategies pick is refused", async || {
        let path = format!("{NODES}/torn?dryRun=All");
        Ok(place.ask(Method::PATCH, &path, Some(&both)).await?.err())
    })
    .await?;
    ensure!(refusal.text.contains("torn") && refusal.text.contains("vnode.koordinator.sh"), "{refusal:?}");
    // What does not touch labels goes through.
    place.patch(&format!("{NODES}/torn"), &json!({"spec": {"unschedulable": true}})).await?;
    place.delete(&format!("{NODES}/torn")).await?;
    place.delete(CONFIG).await
}
