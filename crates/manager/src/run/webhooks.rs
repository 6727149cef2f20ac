//! Admission on every replica: what the caches know goes in, answers come out. Spec: manager 1.3.

use koord_kit::http::Health;
use tokio_util::sync::CancellationToken;

use crate::controllers::Ground;
use crate::webhook::checks::Checks;
use crate::webhook::follow::Sources;
use crate::webhook::{self, Parts, Served, StartError};

/// Starts the webhook server, unless its gate is off, and lets `/readyz` ask it.
pub(super) async fn start(
    ground: &Ground,
    health: &Health,
    leaving: &CancellationToken,
) -> Result<Option<Served>, StartError> {
    let Ground { client, world, options, kit_metrics, internal, tasks, stop, .. } = ground;
    if !options.gates.is_on("WebhookFramework") {
        return Ok(None);
    }
    let mut checks = Checks::new(world, client, options, kit_metrics, internal);
    checks.start(tasks, stop);
    let parts = Parts {
        client: client.clone(),
        settings: options.webhook.clone(),
        gates: options.gates.clone(),
        sources: Sources::of(world),
        handlers: checks.handlers(),
        quotas: checks.quotas(),
        recorder: ground.recorder("koord-manager"),
        metrics: internal.clone(),
        leaving: leaving.clone(),
    };
    let served = webhook::start(parts, stop.clone(), |task| _ = tasks.spawn(task)).await?;
    tokio::select! {
        () = checks.synced() => {}
        () = stop.cancelled() => {}
    }
    health.add(served.readiness.check());
    Ok(Some(served))
}
