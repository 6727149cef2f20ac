//! Whether memory grows while pods come and go: a day of the node's thread, as fast as it goes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bench_report::Report;
use crate::step::say;

const CONTAINERS: &str = "150";
/// Pods that end and begin every minute.
const PERCENT: &str = "5";
/// The store fills for an hour, and models of pods that are gone stay for a while.
const WARM_UP_HOURS: f64 = 3.0;
const MIB_PER_HOUR_MAX: f64 = 1.0;

/// Resident memory at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    hours: f64,
    mib: f64,
}

pub(super) fn run(report: &mut Report, day: &Path, hours: u32) -> Result<()> {
    ensure!(f64::from(hours) > WARM_UP_HOURS, "memory is looked at after {WARM_UP_HOURS} hours");
    for version in ["v1", "v2"] {
        say(&format!("\n{version}, {CONTAINERS} containers, {PERCENT} % of the pods replaced every minute"));
        let dir = tempfile::tempdir()?;
        let place = dir.path().to_str().context("the directory for temporary files is not UTF-8")?;
        let output = Command::new(day)
            .args([place, version, CONTAINERS, &hours.to_string(), PERCENT])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start the day")?;
        ensure!(output.status.success(), "the day ended with {}", output.status);
        let looks = parse(&String::from_utf8_lossy(&output.stdout))?;
        for look in looks.iter().filter(|look| look.hours.fract() == 0.0) {
            say(&format!("      after {:>2} h: {:.1} MiB", look.hours, look.mib));
        }
        let settled: Vec<Look> = looks.into_iter().filter(|look| look.hours >= WARM_UP_HOURS).collect();
        let slope = slope(&settled).context("there are too few looks at memory")?;
        report.figure(
            &format!("{version}: resident memory grows {slope:.3} MiB an hour in {hours} hours of churn"),
            &format!("{MIB_PER_HOUR_MAX} MiB an hour"),
            slope < MIB_PER_HOUR_MAX,
        );
    }
    Ok(())
}

/// Lines of minutes and KiB.
fn parse(text: &str) -> Result<Vec<Look>> {
    let look = |line: &str| {
        let (minute, kib) = line.split_once(' ').context("a line has two numbers")?;
        Ok(Look { hours: minute.parse::<f64>()? / 60.0, mib: kib.parse::<f64>()? / 1024.0 })
    };
    text.lines().map(look).collect()
}

/// MiB per hour of the straight line that is nearest. None for fewer than two times.
fn slope(looks: &[Look]) -> Option<f64> {
    let count = f64::from(u32::try_from(looks.len()).ok()?);
    let mean = |value: fn(&Look) -> f64| looks.iter().map(value).sum::<f64>() / count;
    let (hours, mib) = (mean(|look| look.hours), mean(|look| look.mib));
    let above: f64 = looks.iter().map(|look| (look.hours - hours) * (look.mib - mib)).sum();
    let below: f64 = looks.iter().map(|look| (look.hours - hours).powi(2)).sum();
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_all_looks() -> Result<()> {
        let looks = parse("60 10240\n120 11264\n180 12288\n")?;
        assert_eq!(looks[1], Look { hours: 2.0, mib: 11.0 });
        assert_eq!(slope(&looks), Some(1.0));
        assert_eq!(slope(&looks[..1]), None);
        Ok(())
    }
}
