//! koord-manager on a real API server: its webhooks, its certificates, its controllers, and what happens when it dies.
//!
//! Two replicas run as processes of their own, as the account that `deploy/manager` gives them.

mod balancer;
mod certificates;
mod lockout;
mod place;
mod replica;
mod story;
mod stream;
mod webhooks;
mod work;

use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};

use place::Place;
use replica::Replica;

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_api_server() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(place) = Place::new(folder.path()).await? else { return Ok(()) };
    let checked = check_all(&place).await;
    if checked.is_err() {
        say(&place.logs()?);
    }
    checked
}

fn say(text: &str) {
    // Nothing useful remains to be done when standard error is gone.
    let _ = writeln!(std::io::stderr(), "{text}");
}

async fn check_all(place: &Place) -> Result<()> {
    // At the same time, so that both find no certificates.
    let mut pair = [Replica::launch(place, "first")?, Replica::launch(place, "second")?];
    for replica in &mut pair {
        replica.ready(place).await?;
    }
    let begun = Instant::now();
    let done = |what: &str| say(&format!("{:6.1} s: {what}", begun.elapsed().as_secs_f64()));
    webhooks::prepare(place).await.context("preparations")?;
    webhooks::check_all(place).await.context("webhooks")?;
    done("webhooks");
    story::jobs_run_on_what_services_leave(place).await.context("co-location")?;
    done("co-location");
    work::zones_follow_their_node(place).await.context("zones")?;
    done("zones");
    work::nonsense_changes_nothing(place).await.context("nonsense")?;
    done("nonsense");
    certificates::none_fails_while_they_change(place, &pair).await.context("certificates")?;
    done("certificates");
    work::storms_lose_nothing(place).await.context("storms")?;
    done("storms");
    pair = work::another_leads(place, pair).await.context("another leads")?;
    done("another leads");
    pair = certificates::none_fails_while_replicas_are_replaced(place, pair).await.context("replacement")?;
    done("replacement");
    pair = work::kills_leave_no_trace(place, pair).await.context("kills")?;
    done("kills");
    lockout::the_cluster_starts_without_us(place, pair).await.context("without us")?;
    done("without us");
    certificates::those_of_somebody_else_are_used(place).await.context("given certificates")?;
    done("given certificates");
    Ok(())
}
