//! Admission on every replica: what the caches know goes in, answers come out. Spec: manager 1.3.

use koord_kit::http::Health;

use crate::controllers::Ground;
use crate::webhook::checks::Checks;
use crate::webhook::follow::Sources;
use crate::webhook::{self, Parts, StartError};

/// Starts the webhook server, unless its gate is off, and lets `/readyz` ask it.
pub(super) async fn start(ground: &Ground, health: &Health) -> Result<(), StartError> {
    let Ground { client, world, options, kit_metrics, internal, tasks, stop, .. } = ground;
    if !options.gates.is_on("WebhookFramework") {
        return Ok(());
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
    };
    let readiness = webhook::start(parts, stop.clone(), |task| _ = tasks.spawn(task)).await?;
    tokio::select! {
        () = checks.synced() => {}
        () = stop.cancelled() => {}
    }
    health.add(readiness.check());
    Ok(())
}
