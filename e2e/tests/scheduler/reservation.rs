//! Reservations end to end: each scenario that the release notes give, and what goes wrong around them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use koord_api::crd::generate;
use koord_api::crd::reservation::{Reservation, ReservationPhase};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::cluster::{Place, eventually};
use crate::ours::Ours;
use crate::{all_placed, create, events, make_nodes, placed, pod};

const ALLOCATED: &str = "scheduling.koordinator.sh/reservation-allocated";
const AFFINITY: &str = "scheduling.koordinator.sh/reservation-affinity";

/// Everything that reservations are for.
pub(crate) async fn check_all(place: &Place) -> Result<()> {
    install(&place.client).await.context("the kind is installed")?;
    lock_for_preemption(place).await.context("preemption lock")?;
    descheduling(place).await.context("descheduling")?;
    horizontal_scaling(place).await.context("horizontal scaling")?;
    pre_allocation(place).await.context("pre-allocation")?;
    what_cannot_be_placed_is_told(place).await.context("what cannot be placed is told")?;
    time_and_restart(place).await.context("time and restart")
}

/// Installs the CRD, if it is not there.
async fn install(client: &Client) -> Result<()> {
    let manifest = generate::manifests()
        .into_iter()
        .find(|crd| crd.content["spec"]["names"]["kind"] == "Reservation")
        .context("the manifest")?;
    let resource = ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let crd: DynamicObject = serde_json::from_value(serde_json::to_value(&manifest.content)?)?;
    match api.create(&PostParams::default(), &crd).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        result => _ = result?,
    }
    let reservations: Api<Reservation> = Api::all(client.clone());
    eventually("the kind is served", async || {
        Ok(reservations.list(&Default::default()).await.is_ok().then_some(()))
    })
    .await
}

struct Scene<'p> {
    place: &'p Place,
    test: &'static str,
    reservations: Api<Reservation>,
    ours: Ours,
}

impl<'p> Scene<'p> {
    /// Nodes of 4 CPUs, and a scheduler that knows reservations.
    async fn new(place: &'p Place, test: &'static str, nodes: usize) -> Result<Scene<'p>> {
        make_nodes(place, test, nodes).await?;
        let ours = Ours::start_with(place, test, &format!("lease-{test}"), PLUGINS, &[]).await?;
        ours.leads().await?;
        Ok(Scene { place, test, reservations: Api::all(place.client.clone()), ours })
    }

    /// A reservation of so many CPUs for pods labelled `app: <test>`.
    async fn reserve(&self, name: &str, cpu: &str, spec: Value) -> Result<()> {
        let test = self.test;
        let mut object = json!({
            "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
            "metadata": {"name": name},
            "spec": {
                "owners": [{"labelSelector": {"matchLabels": {"app": test}}}],
                "ttl": "1h",
                "template": {"metadata": {"namespace": "default"}, "spec": {
                    "schedulerName": test, "nodeSelector": {"test": test}, "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}},
            },
        });
        merge(&mut object, &json!({"spec": spec}));
        self.reservations.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    async fn phase(&self, name: &str, phase: ReservationPhase) -> Result<Reservation> {
        eventually(&format!("reservation {name} is {phase}"), async || {
            let object = self.reservations.get(name).await?;
            Ok((object.phase() == phase).then_some(object))
        })
        .await
    }

    fn plain(&self, name: &str, cpu: &str) -> Result<Pod> {
        pod(name, self.test, self.test, cpu, None)
    }

    /// A pod that may use reservations of this test, and must where it says so.
    fn owner(&self, name: &str, cpu: &str, must: bool) -> Result<Pod> {
        let mut pod = self.plain(name, cpu)?;
        pod.metadata.labels.get_or_insert_default().insert("app".to_owned(), self.test.to_owned());
        if must {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(AFFINITY.to_owned(), "{}".to_owned());
        }
        Ok(pod)
    }

    async fn is_refused(&self, name: &str, words: &str) -> Result<()> {
        eventually(&format!("{name} is refused: {words}"), async || {
            let pod = self.place.pods().get(name).await?;
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            let told = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
            Ok(told.and_then(|told| told.message).filter(|message| message.contains(words)).map(drop))
        })
        .await
    }

    /// The name of the reservation that a placed pod uses.
    async fn used_by(&self, name: &str) -> Result<String> {
        let pod = self.place.pods().get(name).await?;
        let mark = pod.metadata.annotations.unwrap_or_default().remove(ALLOCATED).context("a mark")?;
        let mark: BTreeMap<String, String> = serde_json::from_str(&mark)?;
        Ok(mark.get("name").cloned().unwrap_or_default())
    }

    async fn end(self) {
        self.ours.stop().await;
    }
}

/// What a profile needs beyond Kubernetes' own plugins.
const PLUGINS: &str = "{preFilter: {enabled: [{name: Reservation}]}, filter: {enabled: [{name: Reservation}]}, \
    postFilter: {disabled: [{name: '*'}], enabled: [{name: Reservation}, {name: DefaultPreemption}]}, \
    preScore: {enabled: [{name: Reservation}]}, score: {enabled: [{name: Reservation, weight: 5000}]}, \
    reserve: {enabled: [{name: Reservation}]}, preBind: {enabled: [{name: Reservation}]}, \
    bind: {disabled: [{name: '*'}], enabled: [{name: Reservation}, {name: DefaultBinder}]}}";

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}

/// A preemptor reserves what its victims leave, so that nobody else of the same priority takes it.
async fn lock_for_preemption(place: &Place) -> Result<()> {
    let scene = Scene::new(place, "lock", 1).await?;
    create(place, [scene.plain("lock-victim", "4")]).await?;
    all_placed(place, "lock", 1).await?;
    scene.reserve("lock", "3", json!({"preAllocation": true, "allocatePolicy": "Aligned"})).await?;
    let waiting = scene.phase("lock", ReservationPhase::Waiting).await?;
    ensure!(waiting.node_name() == Some("lock-0"), "{waiting:?}");
    create(place, [scene.plain("lock-thief", "3")]).await?;
    scene.is_refused("lock-thief", "Insufficient cpu").await?;
    place.pods().delete("lock-victim", &DeleteParams::default().grace_period(0)).await?;
    scene.phase("lock", ReservationPhase::Available).await?;
    create(place, [scene.owner("lock-owner", "3", true)]).await?;
    eventually("the owner is placed", async || {
        Ok(placed(place, "lock").await?.get("lock-owner").is_some_and(Option::is_some).then_some(()))
    })
    .await?;
    ensure!(scene.used_by("lock-owner").await? == "lock");
    scene.is_refused("lock-thief", "Insufficient cpu").await?;
    scene.end().await;
    Ok(())
}

/// What the descheduler does: a place is made sure of, the pod is evicted, its successor takes the place.
async fn descheduling(place: &Place) -> Result<()> {
    let scene = Scene::new(place, "move", 2).await?;
    create(place, [scene.owner("move-old", "2", false)]).await?;
    let before = placed(place, "move").await;
    let before = match before?.remove("move-old").flatten() {
        Some(node) => node,
        None => all_placed(place, "move", 1).await?.into_keys().next().context("a node")?,
    };
    let target = if before == "move-0" { "move-1" } else { "move-0" };
    scene.reserve("move", "2", json!({"template": {"spec": {"nodeName": target}}})).await?;
    let held = scene.phase("move", ReservationPhase::Available).await?;
    ensure!(held.node_name() == Some(target), "{held:?}");
    place.pods().delete("move-old", &DeleteParams::default().grace_period(0)).await?;
    create(place, [scene.owner("move-new", "2", false)]).await?;
    let used = scene.phase("move", ReservationPhase::Succeeded).await?;
    let status = used.status.unwrap_or_default();
    let owners: Vec<&str> = status.current_owners.iter().filter_map(|owner| owner.name.as_deref()).collect();
    ensure!(owners == ["move-new"], "{owners:?}");
    ensure!(status.allocated.get("cpu").is_some_and(|cpu| cpu.milli_value() == 2000), "{status:?}");
    ensure!(placed(place, "move").await?["move-new"].as_deref() == Some(target));
    let told = eventually("the event names the reservation", async || {
        Ok(events(place, "move-new", "ReservationAllocated").await?.into_iter().next())
    })
    .await?;
    ensure!(told.note.as_deref() == Some("Allocated from reservation move"), "{told:?}");
    // Consumed: nothing is held any more, and nobody can use it again.
    create(place, [scene.owner("move-third", "1", true)]).await?;
    scene.is_refused("move-third", "no reservations match reservation affinity").await?;
    scene.end().await;
    Ok(())
}

/// Room for replicas to come is held before they come, and used by several.
async fn horizontal_scaling(place: &Place) -> Result<()> {
    let scene = Scene::new(place, "scale", 1).await?;
    scene.reserve("scale", "3", json!({"allocateOnce": false, "allocatePolicy": "Restricted"})).await?;
    scene.phase("scale", ReservationPhase::Available).await?;
    create(place, [scene.plain("scale-other", "2")]).await?;
    scene.is_refused("scale-other", "Insufficient cpu").await?;
    create(place, (0..3).map(|number| scene.owner(&format!("scale-{number}"), "1", true))).await?;
    eventually("three owners share it", async || {
        let object = scene.reservations.get("scale").await?;
        let status = object.status.unwrap_or_default();
        Ok((status.current_owners.len() == 3).then_some(()))
    })
    .await?;
    create(place, [scene.owner("scale-3", "1", true)]).await?;
    scene.is_refused("scale-3", "Reservation(s) Insufficient cpu").await?;
    // Scaling down gives the room back to the reservation, and the next one takes it.
    place.pods().delete("scale-0", &DeleteParams::default().grace_period(0)).await?;
    eventually("the fourth takes the place of the first", async || {
        Ok(placed(place, "scale").await?.get("scale-3").is_some_and(Option::is_some).then_some(()))
    })
    .await?;
    let node: Value = scene.ours.get("/apis/v1/plugins/Reservation/nodeReservations/scale-0").await?;
    ensure!(
        node["items"][0]["name"] == "scale" && node["items"][0]["allocatePolicy"] == "Restricted",
        "{node}"
    );
    let nodes: Api<Node> = Api::all(place.client.clone());
    nodes.delete("scale-0", &DeleteParams::default()).await?;
    scene.phase("scale", ReservationPhase::Failed).await?;
    scene.end().await;
    Ok(())
}

/// Resources that are in use are reserved for later.
async fn pre_allocation(place: &Place) -> Result<()> {
    let scene = Scene::new(place, "pre", 1).await?;
    create(place, [scene.owner("pre-running", "3", false)]).await?;
    all_placed(place, "pre", 1).await?;
    // Restricted: the running owner is taken in.
    scene
        .reserve(
            "pre",
            "3",
            json!({"preAllocation": true, "allocatePolicy": "Restricted",
        "allocateOnce": false}),
        )
        .await?;
    let held = scene.phase("pre", ReservationPhase::Available).await?;
    ensure!(held.node_name() == Some("pre-0"), "{held:?}");
    eventually("the running pod is its owner", async || {
        let status = scene.reservations.get("pre").await?.status.unwrap_or_default();
        Ok((status.current_owners.len() == 1).then_some(()))
    })
    .await?;
    ensure!(scene.used_by("pre-running").await? == "pre");
    // Its place is kept when it goes.
    place.pods().delete("pre-running", &DeleteParams::default().grace_period(0)).await?;
    create(place, [scene.plain("pre-thief", "2")]).await?;
    scene.is_refused("pre-thief", "Insufficient cpu").await?;
    create(place, [scene.owner("pre-next", "3", true)]).await?;
    eventually("the next owner is placed", async || {
        Ok(placed(place, "pre").await?.get("pre-next").is_some_and(Option::is_some).then_some(()))
    })
    .await?;
    scene.end().await;
    Ok(())
}

async fn what_cannot_be_placed_is_told(place: &Place) -> Result<()> {
    let scene = Scene::new(place, "told", 1).await?;
    scene.reserve("told", "9", json!({})).await?;
    let object = eventually("the condition says why", async || {
        let object = scene.reservations.get("told").await?;
        let conditions = object.status.clone().unwrap_or_default().conditions;
        Ok((!conditions.is_empty()).then_some(object))
    })
    .await?;
    let conditions = object.status.clone().unwrap_or_default().conditions;
    ensure!(conditions[0].reason == "Unschedulable", "{conditions:?}");
    ensure!(conditions[0].message.contains("Insufficient cpu"), "{conditions:?}");
    let event = eventually("the event says why", async || {
        Ok(events(place, "told", "FailedScheduling").await?.into_iter().next())
    })
    .await?;
    let regarding = event.regarding.context("what it is about")?;
    ensure!(regarding.kind.as_deref() == Some("Reservation"), "{regarding:?}");
    let explained = scene.ours.get("/apis/v1/explain/reservation/told").await?;
    ensure!(
        explained["isReservation"] == true && explained["state"]["name"] == "unschedulable",
        "{explained}"
    );
    scene.reservations.delete("told", &DeleteParams::default()).await?;
    scene.end().await;
    Ok(())
}

/// A scheduler that crashes leaves nothing stale, and what is over is over.
async fn time_and_restart(place: &Place) -> Result<()> {
    let scene = Scene::new(place, "late", 1).await?;
    scene.reserve("late", "2", json!({"allocateOnce": false})).await?;
    scene.phase("late", ReservationPhase::Available).await?;
    create(place, [scene.owner("late-a", "1", true)]).await?;
    eventually("it has an owner", async || {
        let status = scene.reservations.get("late").await?.status.unwrap_or_default();
        Ok((status.current_owners.len() == 1).then_some(()))
    })
    .await?;
    let Scene { ours, reservations, .. } = scene;
    ours.crash();
    // Nobody watches while the owner goes.
    place.pods().delete("late-a", &DeleteParams::default().grace_period(0)).await?;
    let ours = Ours::start_with(place, "late", "lease-late", PLUGINS, &[]).await?;
    ours.leads().await?;
    eventually("the stale owner is gone", async || {
        let status = reservations.get("late").await?.status.unwrap_or_default();
        Ok(status.current_owners.is_empty().then_some(()))
    })
    .await?;
    let soon = json!({"spec": {"ttl": "1s"}});
    reservations.patch("late", &PatchParams::default(), &Patch::Merge(&soon)).await?;
    eventually("it has expired", async || Ok(reservations.get("late").await?.is_expired().then_some(())))
        .await?;
    ours.stop().await;
    Ok(())
}
