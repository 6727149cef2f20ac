//! A minute of generated scenarios: the real kube-scheduler and our engine give the same answers.
//!
//! `cargo xtask differential --scenarios 500` runs more of them, `--seed N` a certain one.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use koord_e2e::differential::{self, Ground, Options};

/// What the test command has time for.
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_decides_as_kube_scheduler_does() -> Result<()> {
    let options = Options {
        ground: Ground::Kubernetes,
        first_seed: 0,
        count: u64::MAX,
        limit: Some(LIMIT),
        except: Vec::new(),
        keep: None,
        failures: None,
        file: None,
    };
    let mut say = |line: &str| {
        // Nothing useful remains to be done when standard error is gone.
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    let Some(report) = differential::compare(&options, &mut say).await? else { return Ok(()) };
    ensure!(report.placed > 0 && report.pending > 0, "nothing was compared: {report}");
    ensure!(report.differences.is_empty(), "{report}\n{}", report.differences.join("\n"));
    Ok(())
}
