//! Writes the Device object of this node when it should say something else. Spec: koordlet-observe 6.6.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use koord_api::crd::device::Device;
use koord_kit::write::{Part, Place, WriteError, Written, update_with};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::report::{Report, report};
use super::{Devices, Options};
use crate::state::{NodeState, State};

/// A report that did not change is compared with the object so often, in case somebody else changed that.
const REVIEW_INTERVAL: Duration = Duration::from_secs(60);

/// Brings the object to what the report says. Says whether anything was sent.
pub async fn publish(
    client: &Client,
    node: &NodeState,
    report: &Report,
    now: Timestamp,
) -> Result<bool, WriteError> {
    let place = Place { namespace: None, name: &node.name };
    let result = update_with(client, place, Part::Object, |device| report.apply(device, now)).await;
    match result {
        Ok(Written::Changed(_)) => Ok(true),
        Ok(Written::Unchanged(_)) => Ok(false),
        // Differs: upstream creates an object for a node without any device.
        Err(error) if error.is_not_found() && report.is_empty() => Ok(false),
        Err(error) if error.is_not_found() => create(client, node, report, now).await.map(|()| true),
        Err(error) => Err(error),
    }
}

async fn create(
    client: &Client,
    node: &NodeState,
    report: &Report,
    now: Timestamp,
) -> Result<(), WriteError> {
    let mut device = Device::default();
    device.metadata.name = Some(node.name.clone());
    device.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.name.clone(),
        uid: node.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    report.apply(&mut device, now);
    let api: Api<Device> = Api::all(client.clone());
    let result = api.create(&PostParams::default(), &device).await;
    result.map(|_| ()).map_err(|source| WriteError::Api {
        kind: "Device".to_owned(),
        place: node.name.clone(),
        source,
    })
}

/// Publishes round after round, and asks the API server only when it may matter.
#[derive(Debug, Default)]
pub struct Publisher {
    /// What the object said when it was last seen, and when that was.
    settled: Option<(Report, Instant)>,
}

impl Publisher {
    /// One round. Says whether anything was sent.
    pub async fn round(
        &mut self,
        client: &Client,
        node: &NodeState,
        report: &Report,
        now: Instant,
    ) -> Result<bool, WriteError> {
        let is_settled = self.settled.as_ref().is_some_and(|(settled, at)| {
            settled == report && now.saturating_duration_since(*at) < REVIEW_INTERVAL
        });
        if is_settled {
            return Ok(false);
        }
        self.settled = None;
        let is_sent = publish(client, node, report, Timestamp::now()).await?;
        self.settled = Some((report.clone(), now));
        Ok(is_sent)
    }
}

/// Publishes until told to stop. Nothing happens before the Node was seen.
pub async fn run(client: Client, state: State, devices: Devices, options: Options, stop: CancellationToken) {
    let mut publisher = Publisher::default();
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(options.scan_interval) => {}
        }
        let Some(inventory) = devices.inventory() else { continue };
        let Some(node) = state.load().node.clone() else { continue };
        let report = report(&inventory, options.is_xpu_only);
        match publisher.round(&client, &node, &report, Instant::now()).await {
            Ok(is_sent) => {
                if is_sent {
                    tracing::info!(node = node.name, "Device reported");
                }
                is_failing = false;
            }
            // The next round is the retry, and a fault that lasts is told once.
            Err(error) if !is_failing => {
                tracing::warn!(
                    node = node.name,
                    error = &error as &dyn std::error::Error,
                    "cannot report the Device"
                );
                is_failing = true;
            }
            Err(_) => {}
        }
    }
}
