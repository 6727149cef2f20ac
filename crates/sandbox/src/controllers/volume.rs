//! PersistentVolumes and their claims: finding one for the other.
//!
//! Claims are bound to volumes that are there, or to one made for them where their class says
//! `koord.sh/sandbox`. A class that waits for a consumer waits for the scheduler's choice of a node.
//! Pure but for the two `sync` functions and what they write.
//!
//! Differs: resizing, snapshots, recycling and generic ephemeral volumes are not there.

use jiff::Timestamp;
use koord_api::quantity::Quantity;
use koord_api::selector::Selector;
use serde::Deserialize;
use serde_json::{Value, json};

use super::recorder::about;
use super::shell::{Next, Shell, time};
use super::view::{self, LabelSet, Meta, PodSelector};
use crate::server::Part;
use crate::status::ApiError;
use crate::store::Selection;

const COMPONENT: &str = "persistentvolume-controller";
const CLAIMS: (&str, &str) = ("", "persistentvolumeclaims");
const VOLUMES: (&str, &str) = ("", "persistentvolumes");
/// The provisioner that the sandbox itself is.
const PROVISIONER: &str = "koord.sh/sandbox";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: Meta,
    spec: ClaimSpec,
    status: Phase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSpec {
    access_modes: Vec<String>,
    storage_class_name: Option<String>,
    volume_mode: Option<String>,
    volume_name: String,
    selector: Option<PodSelector>,
    resources: Resources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Storage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Storage {
    storage: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Phase {
    phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Volume {
    metadata: Meta,
    spec: VolumeSpec,
    status: Phase,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeSpec {
    access_modes: Vec<String>,
    storage_class_name: String,
    volume_mode: Option<String>,
    capacity: Storage,
    claim_ref: Option<Meta>,
    persistent_volume_reclaim_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Class {
    provisioner: String,
    volume_binding_mode: String,
    reclaim_policy: Option<String>,
    mount_options: Vec<String>,
}

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_default()
}

impl Volume {
    /// The claim that the volume is kept for, if any.
    fn is_kept_for(&self, claim: &Claim) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|kept| {
            kept.name == claim.metadata.name
                && kept.namespace == claim.metadata.namespace
                && (kept.uid.is_empty() || kept.uid == claim.metadata.uid)
        })
    }

    /// Whether the claim could use the volume, whoever it is kept for.
    fn suits(&self, claim: &Claim) -> bool {
        let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
        let everything = Selector::everything();
        let selector = claim.spec.selector.as_ref().map_or(&everything, |selector| &selector.0);
        let labels: &LabelSet = &self.metadata.labels;
        self.spec.storage_class_name == claim.spec.storage_class_name.as_deref().unwrap_or("")
            && mode(&self.spec.volume_mode) == mode(&claim.spec.volume_mode)
            && claim.spec.access_modes.iter().all(|mode| self.spec.access_modes.contains(mode))
            && quantity(&self.spec.capacity.storage) >= quantity(&claim.spec.resources.requests.storage)
            && selector.matches(labels)
            && !self.metadata.is_deleting()
    }
}

/// The volume kept for the claim, or the smallest that suits and is free.
fn find<'a>(claim: &Claim, volumes: &'a [Volume], kept_only: bool) -> Option<&'a Volume> {
    let kept = volumes.iter().find(|volume| volume.is_kept_for(claim) && volume.suits(claim));
    if kept.is_some() || kept_only {
        return kept;
    }
    let free = volumes.iter().filter(|volume| volume.spec.claim_ref.is_none() && volume.suits(claim));
    free.min_by_key(|volume| (quantity(&volume.spec.capacity.storage), volume.metadata.name.clone()))
}

pub(super) async fn sync_claim(shell: &Shell, key: &str) -> Next {
    if key.is_empty() {
        return wake_pending(shell).await;
    }
    let Some(stored) = shell.get(CLAIMS.0, CLAIMS.1, key) else { return Ok(None) };
    let Some(claim) = view::read::<Claim>(&stored) else { return Ok(None) };
    if claim.metadata.is_deleting() {
        return let_go(shell, &claim).await;
    }
    if claim.metadata.annotation(BIND_COMPLETED).is_some() {
        return keep(shell, &claim).await;
    }
    let volumes = volumes(shell);
    if !claim.spec.volume_name.is_empty() {
        let named = volumes.iter().find(|volume| *volume.metadata.name == *claim.spec.volume_name);
        match named.filter(|volume| volume.spec.claim_ref.is_none() || volume.is_kept_for(&claim)) {
            Some(volume) => bind(shell, &claim, volume).await?,
            None => set_phase(shell, CLAIMS, &claim.metadata, "Pending").await?,
        }
        return Ok(None);
    }
    let class = class(shell, claim.spec.storage_class_name.as_deref().unwrap_or(""));
    let waits = class.as_ref().is_some_and(|class| class.volume_binding_mode == "WaitForFirstConsumer");
    let is_placed = claim.metadata.annotation(SELECTED_NODE).is_some();
    if let Some(volume) = find(&claim, &volumes, waits) {
        bind(shell, &claim, volume).await?;
        return Ok(None);
    }
    set_phase(shell, CLAIMS, &claim.metadata, "Pending").await?;
    if waits && !is_placed {
        let about = about("v1", "PersistentVolumeClaim", &claim.metadata);
        let text = "waiting for first consumer to be created before binding".to_owned();
        shell.tell(COMPONENT, &about, "WaitForFirstConsumer", text).await;
        return Ok(None);
    }
    provision(shell, &claim, class.as_ref(), &stored.value()).await?;
    Ok(None)
}

/// A claim on its way out is protected while a pod that has a node uses it.
async fn let_go(shell: &Shell, claim: &Claim) -> Next {
    if !claim.metadata.has_finalizer(CLAIM_PROTECTION) {
        return Ok(None);
    }
    let is_used = shell.look(|world| {
        let mut pods = world.pods.in_namespace(&claim.metadata.namespace);
        pods.any(|pod| !pod.node.is_empty() && pod.claims.contains(&claim.metadata.name))
    });
    if !is_used {
        remove_finalizer(shell, CLAIMS, &claim.metadata, CLAIM_PROTECTION).await?;
    }
    Ok(None)
}

async fn remove_finalizer(
    shell: &Shell,
    resource: (&str, &str),
    meta: &Meta,
    name: &str,
) -> Result<(), ApiError> {
    let change = |object: &mut Value| {
        let fields = crate::kinds::meta::of_mut(object);
        if let Some(list) = fields.get_mut("finalizers").and_then(Value::as_array_mut) {
            list.retain(|f| f != name);
        }
    };
    shell.edit(resource, &meta.key(), &meta.uid, Part::Main, &change).await.map(|_| ())
}

async fn wake_pending(shell: &Shell) -> Next {
    let Ok(kind) = shell.api.kind(CLAIMS.0, CLAIMS.1) else { return Ok(None) };
    for stored in shell.api.list(&kind, &Selection::default()) {
        let claim = view::read::<Claim>(&stored).unwrap_or_default();
        if claim.metadata.annotation(BIND_COMPLETED).is_none() {
            shell.wake(super::world::Work::Claim, stored.key());
        }
    }
    Ok(None)
}

fn volumes(shell: &Shell) -> Vec<Volume> {
    let Ok(kind) = shell.api.kind(VOLUMES.0, VOLUMES.1) else { return Vec::new() };
    shell.api.list(&kind, &Selection::default()).iter().filter_map(|stored| view::read(stored)).collect()
}

fn class(shell: &Shell, name: &str) -> Option<Class> {
    let stored = shell.get("storage.k8s.io", "storageclasses", name).filter(|_| !name.is_empty())?;
    view::read(&stored)
}

/// A bound claim whose volume went is lost.
async fn keep(shell: &Shell, claim: &Claim) -> Next {
    let volume = shell.get(VOLUMES.0, VOLUMES.1, &claim.spec.volume_name);
    let volume = volume.and_then(|stored| view::read::<Volume>(&stored));
    let about = about("v1", "PersistentVolumeClaim", &claim.metadata);
    match volume {
        Some(volume) if volume.is_kept_for(claim) => {
            if claim.status.phase != "Bound" {
                bind(shell, claim, &volume).await?;
            }
        }
        Some(volume) if volume.spec.claim_ref.is_none() => bind(shell, claim, &volume).await?,
        found => {
            let (reason, text) = match found {
                Some(_) => (
                    "ClaimMisbound",
                    "Two claims are bound to the same volume, this one is bound incorrectly",
                ),
                None => {
                    ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
                }
            };
            if claim.status.phase != "Lost" {
                set_phase(shell, CLAIMS, &claim.metadata, "Lost").await?;
                shell.warn(COMPONENT, &about, reason, text.to_owned()).await;
            }
        }
    }
    Ok(None)
}

async fn set_phase(shell: &Shell, resource: (&str, &str), meta: &Meta, phase: &str) -> Result<(), ApiError> {
    let change = |object: &mut Value| object["status"]["phase"] = json!(phase);
    shell.edit(resource, &meta.key(), &meta.uid, Part::Status, &change).await.map(|_| ())
}

/// Ties volume and claim, in the order that survives a stop in between.
async fn bind(shell: &Shell, claim: &Claim, volume: &Volume) -> Result<(), ApiError> {
    let (name, key) = (&*volume.metadata.name, claim.metadata.key());
    let stored = shell.get(CLAIMS.0, CLAIMS.1, &key);
    let revision = stored.map(|stored| stored.revision().to_string()).unwrap_or_default();
    let change = |object: &mut Value| {
        let is_kept = object["spec"]["claimRef"].is_object();
        if object["spec"]["claimRef"]["uid"] != *claim.metadata.uid {
            object["spec"]["claimRef"] = json!({
                "kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "namespace": &*claim.metadata.namespace, "name": &*claim.metadata.name,
                "uid": &*claim.metadata.uid, "resourceVersion": revision,
            });
        }
        if !is_kept {
            object["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
        }
    };
    if !shell.edit(VOLUMES, name, &volume.metadata.uid, Part::Main, &change).await? {
        return Ok(());
    }
    set_phase(shell, VOLUMES, &volume.metadata, "Bound").await?;
    let change = |object: &mut Value| {
        if object["spec"]["volumeName"] != name {
            object["spec"]["volumeName"] = json!(name);
            object["metadata"]["annotations"][BOUND_BY_CONTROLLER] = json!("yes");
        }
        object["metadata"]["annotations"][BIND_COMPLETED] = json!("yes");
    };
    shell.edit(CLAIMS, &key, &claim.metadata.uid, Part::Main, &change).await?;
    let change = |object: &mut Value| {
        object["status"]["phase"] = json!("Bound");
        object["status"]["accessModes"] = json!(volume.spec.access_modes);
        object["status"]["capacity"] = json!({"storage": volume.spec.capacity.storage});
    };
    shell.edit(CLAIMS, &key, &claim.metadata.uid, Part::Status, &change).await.map(|_| ())
}

/// Makes a volume for the claim, or says who should.
async fn provision(
    shell: &Shell,
    claim: &Claim,
    class: Option<&Class>,
    object: &Value,
) -> Result<(), ApiError> {
    let about = about("v1", "PersistentVolumeClaim", &claim.metadata);
    let name = claim.spec.storage_class_name.as_deref().unwrap_or("");
    let Some(class) = class else {
        match name {
            "" => {
                let text = "no persistent volumes available for this claim and no storage class is set";
                shell.tell(COMPONENT, &about, "FailedBinding", text.to_owned()).await;
            }
            name => {
                let text = format!("storageclass.storage.k8s.io {} not found", crate::kinds::quote(name));
                shell.warn(COMPONENT, &about, "ProvisioningFailed", text).await;
            }
        }
        return Ok(());
    };
    match class.provisioner.as_str() {
        PROVISIONER => {}
        NO_PROVISIONER => {
            let text = format!("no volume plugin matched name: {NO_PROVISIONER}");
            shell.warn(COMPONENT, &about, "ProvisioningFailed", text).await;
            return Ok(());
        }
        other => {
            let text = format!(
                "Waiting for a volume to be created either by the external provisioner '{other}' or manually by the \
                 system administrator. If volume creation is delayed, please verify that the provisioner is running \
                 and correctly registered."
            );
            shell.tell(COMPONENT, &about, "ExternalProvisioning", text).await;
            return Ok(());
        }
    }
    let volume = new_volume(claim, class, object);
    let text = format!("Successfully provisioned volume pvc-{}", claim.metadata.uid);
    match shell.create(VOLUMES, "", volume).await {
        Ok(_) => shell.tell(COMPONENT, &about, "ProvisioningSucceeded", text).await,
        // Made before; its binding is still to come.
        Err(error) if error.reason == "AlreadyExists" => {}
        Err(error) => {
            shell.warn(COMPONENT, &about, "ProvisioningFailed", error.to_string()).await;
            return Err(error);
        }
    }
    Ok(())
}

fn new_volume(claim: &Claim, class: &Class, object: &Value) -> Value {
    let name = format!("pvc-{}", claim.metadata.uid);
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": claim.spec.resources.requests.storage},
            "accessModes": claim.spec.access_modes,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": claim.spec.storage_class_name,
            "volumeMode": claim.spec.volume_mode.as_deref().unwrap_or("Filesystem"),
            "hostPath": {"path": format!("/sandbox/{name}")},
            "claimRef": {
                "kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "namespace": &*claim.metadata.namespace, "name": &*claim.metadata.name,
                "uid": &*claim.metadata.uid, "resourceVersion": object["metadata"]["resourceVersion"],
            },
        },
    });
    if !class.mount_options.is_empty() {
        volume["spec"]["mountOptions"] = json!(class.mount_options);
    }
    volume
}

/// The phase a volume should be in, given whether its claim is there and bound to it.
fn volume_phase(volume: &Volume, claim: Option<&Claim>) -> &'static str {
    let Some(kept) = &volume.spec.claim_ref else { return "Available" };
    // Kept for a claim by name, which is still to come.
    if kept.uid.is_empty() {
        return "Available";
    }
    match claim.filter(|claim| claim.metadata.uid == kept.uid) {
        None => "Released",
        Some(claim) if *claim.spec.volume_name == *volume.metadata.name => "Bound",
        Some(_) => "Available",
    }
}

pub(super) async fn sync_volume(shell: &Shell, name: &str) -> Next {
    let Some(stored) = shell.get(VOLUMES.0, VOLUMES.1, name) else { return Ok(None) };
    let Some(volume) = view::read::<Volume>(&stored) else { return Ok(None) };
    if volume.metadata.is_deleting() && volume.status.phase != "Bound" {
        if volume.metadata.has_finalizer(VOLUME_PROTECTION) {
            remove_finalizer(shell, VOLUMES, &volume.metadata, VOLUME_PROTECTION).await?;
        }
        return Ok(None);
    }
    let claim = volume.spec.claim_ref.as_ref().and_then(|kept| shell.get(CLAIMS.0, CLAIMS.1, &kept.key()));
    let claim = claim.and_then(|stored| view::read::<Claim>(&stored));
    let phase = volume_phase(&volume, claim.as_ref());
    if volume.status.phase != phase {
        let now: Timestamp = shell.api.now();
        let change = |object: &mut Value| {
            object["status"]["phase"] = json!(phase);
            object["status"]["lastPhaseTransitionTime"] = time(now);
        };
        shell.edit(VOLUMES, name, &volume.metadata.uid, Part::Status, &change).await?;
    }
    let is_ours = volume.metadata.annotation(PROVISIONED_BY) == Some(PROVISIONER);
    if phase == "Released"
        && is_ours
        && !volume.metadata.is_deleting()
        && volume.spec.persistent_volume_reclaim_policy == "Delete"
    {
        shell.delete(VOLUMES, name, &volume.metadata.uid, None).await?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(spec: Value) -> Claim {
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "spec": spec}))
            .unwrap()
    }

    fn volume(name: &str, size: &str, extra: Value) -> Volume {
        let mut spec =
            json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "s"});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"tier": name}}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn the_smallest_volume_that_suits_is_found() {
        let wish = |extra: Value| {
            let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "s",
                "resources": {"requests": {"storage": "5Gi"}}});
            for (key, value) in extra.as_object().unwrap() {
                spec[key] = value.clone();
            }
            claim(spec)
        };
        let volumes = [
            volume("small", "1Gi", json!({})),
            volume("large", "100Gi", json!({})),
            volume("right", "6Gi", json!({})),
            volume("other-class", "5Gi", json!({"storageClassName": "t"})),
            volume("taken", "5Gi", json!({"claimRef": {"name": "x", "namespace": "d", "uid": "x"}})),
            volume("block", "5Gi", json!({"volumeMode": "Block"})),
        ];
        for (name, claim, want) in [
            ("plain", wish(json!({})), Some("right")),
            ("by label", wish(json!({"selector": {"matchLabels": {"tier": "large"}}})), Some("large")),
            ("modes", wish(json!({"accessModes": ["ReadWriteMany"]})), None),
            ("block", wish(json!({"volumeMode": "Block"})), Some("block")),
            ("too much", wish(json!({"resources": {"requests": {"storage": "1Ti"}}})), None),
        ] {
            assert_eq!(find(&claim, &volumes, false).map(|v| &*v.metadata.name), want, "{name}");
        }
        let kept = [
            volume("kept", "9Gi", json!({"claimRef": {"name": "c", "namespace": "d"}})),
            volume("free", "5Gi", json!({})),
        ];
        assert_eq!(find(&wish(json!({})), &kept, false).map(|v| &*v.metadata.name), Some("kept"));
        assert!(
            find(&wish(json!({})), &volumes, true).is_none(),
            "who waits takes only what is kept for them"
        );
    }

    #[test]
    fn a_volume_is_as_its_claim() {
        let bound = claim(json!({"volumeName": "v"}));
        let with = |claim_ref: Value| volume("v", "1Gi", json!({"claimRef": claim_ref}));
        for (name, volume, claim, want) in [
            ("free", volume("v", "1Gi", json!({})), None, "Available"),
            ("promised", with(json!({"name": "c", "namespace": "d"})), None, "Available"),
            ("bound", with(json!({"name": "c", "namespace": "d", "uid": "u"})), Some(&bound), "Bound"),
            ("left", with(json!({"name": "c", "namespace": "d", "uid": "u"})), None, "Released"),
            (
                "another of the name",
                with(json!({"name": "c", "namespace": "d", "uid": "v"})),
                Some(&bound),
                "Released",
            ),
        ] {
            assert_eq!(volume_phase(&volume, claim), want, "{name}");
        }
    }
}
