//! Events do not stay forever: Kubernetes forgets them after an hour.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::api::Api;
use crate::store::{Query, Stored};

/// How long an Event is kept.
const KEPT: SignedDuration = SignedDuration::from_hours(1);
/// Events kept however young they are: bounds memory under a storm.
const EVENTS_MAX: usize = 100_000;
/// How often old ones are looked for.
const EVERY: Duration = Duration::from_secs(60);

/// Sweeps until aborted.
pub(super) async fn run(api: Arc<Api>) {
    let mut interval = tokio::time::interval(EVERY);
    loop {
        interval.tick().await;
        let api = api.clone();
        // Reading a hundred thousand events takes a moment that others should not wait.
        let _ = tokio::task::spawn_blocking(move || sweep(&api)).await;
    }
}

/// Removes old Events, and the oldest beyond the bound.
fn sweep(api: &Api) {
    let table = api.store.table("", "events");
    let Ok(page) = table.page(Query::default(), &|_| true) else { return };
    let oldest = api.now() - KEPT;
    let mut items = page.items;
    items.sort_by_key(|item| item.revision());
    let excess = items.len().saturating_sub(EVENTS_MAX);
    for (i, item) in items.iter().enumerate() {
        if i < excess || born(item).is_some_and(|time| time < oldest) {
            // Touched since: then it is young again.
            let _ = table.remove(item.key(), item.revision());
        }
    }
}

/// The last time an Event was seen: series are updated in place.
fn born(event: &Stored) -> Option<Timestamp> {
    let value = event.value();
    let times = [
        &value["lastTimestamp"],
        &value["series"]["lastObservedTime"],
        &value["metadata"]["creationTimestamp"],
    ];
    times.iter().filter_map(|time| time.as_str()?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Draft, Limits};
    use serde_json::json;

    #[test]
    fn old_events_go_and_repeated_ones_stay() {
        let now: Timestamp = "2024-06-01T12:00:00Z".parse().unwrap();
        let api = Api::with_clock(Limits::default(), Box::new(move || now));
        let table = api.store.table("", "events");
        for (name, created, last) in [
            ("old", "2024-06-01T10:00:00Z", json!(null)),
            ("repeated", "2024-06-01T10:00:00Z", json!("2024-06-01T11:30:00Z")),
            ("young", "2024-06-01T11:30:00Z", json!(null)),
        ] {
            let event =
                json!({"metadata": {"name": name, "creationTimestamp": created}, "lastTimestamp": last});
            table.create(Draft::new(&event, Vec::new())).unwrap();
        }
        sweep(&api);
        assert!(table.get("old").is_none());
        assert!(table.get("repeated").is_some() && table.get("young").is_some());
    }
}
