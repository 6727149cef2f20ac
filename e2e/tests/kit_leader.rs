//! Leader election on a real API server: whoever is stopped, cut off or told to go, two never lead at once, be they
//! ours or Kubernetes' own client.

mod proxy;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use koord_testkit::{ControlPlane, peer, shared, wait_until};

use proxy::Proxy;

const LIMIT: Duration = Duration::from_secs(60);

/// A candidate in its own process, and the claims it made.
struct Candidate {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    name: &'static str,
}

impl Candidate {
    fn start(program: &Path, kubeconfig: &Path, lease: &str, name: &'static str) -> Result<Candidate> {
        let mut child = Command::new(program)
            .args(["-lease-duration=4s", "-renew-deadline=2500ms", "-retry-period=500ms"])
            .arg(format!("-kubeconfig={}", kubeconfig.display()))
            .args([format!("-name={lease}"), format!("-identity={name}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (sink, out) = (lines.clone(), child.stdout.take().context("piped")?);
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                sink.lock().expect("no reader panics").push(line);
            }
        });
        Ok(Candidate { child, lines, name })
    }

    fn ours(cluster: &ControlPlane, lease: &str, name: &'static str) -> Result<Candidate> {
        Candidate::start(Path::new(env!("CARGO_BIN_EXE_candidate")), cluster.kubeconfig(), lease, name)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let status =
            Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.child.id())]).status()?;
        ensure!(status.success(), "kill -{signal} {}", self.name);
        Ok(())
    }

    /// When each term was first and last claimed, as `(term, first, last)`.
    fn terms(&self) -> Vec<(u32, u64, u64)> {
        let mut terms: Vec<(u32, u64, u64)> = Vec::new();
        for line in self.lines.lock().expect("no reader panics").iter() {
            let mut words = line.split(' ');
            let (Some("lead"), Some(time), Some(term)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let (time, term) = (time.parse().expect("a time"), term.parse().expect("a term"));
            match terms.last_mut() {
                Some(last) if last.0 == term => last.2 = time,
                _ => terms.push((term, time, time)),
            }
        }
        terms
    }

    fn claims(&self) -> usize {
        self.lines.lock().expect("no reader panics").iter().filter(|line| line.starts_with("lead")).count()
    }

    /// Waits for a claim that was not there before.
    fn wait_to_lead(&self) -> Result<()> {
        let before = self.claims();
        wait_until(LIMIT, &format!("{} to lead", self.name), || (self.claims() > before).then_some(()))?;
        Ok(())
    }

    fn wait_for(&self, line: &str) -> Result<()> {
        let seen =
            || self.lines.lock().expect("no reader panics").iter().any(|seen| seen == line).then_some(());
        wait_until(LIMIT, &format!("{} to say {line}", self.name), seen)?;
        Ok(())
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No two terms of any candidates overlap.
fn check_exclusive(candidates: &[&Candidate]) {
    let mut terms: Vec<(u64, u64, &str)> = candidates
        .iter()
        .flat_map(|candidate| {
            candidate.terms().into_iter().map(|(_, first, last)| (first, last, candidate.name))
        })
        .collect();
    terms.sort_unstable();
    for pair in terms.windows(2) {
        assert!(pair[0].1 < pair[1].0, "{} and {} led at once: {terms:?}", pair[0].2, pair[1].2);
    }
    assert!(terms.len() >= 2, "{terms:?}");
}

/// One leads, is paused until the other leads, wakes up, and gets the lease back when the other goes.
fn check_pause(first: Candidate, start_second: impl FnOnce() -> Result<Candidate>) -> Result<()> {
    first.wait_to_lead()?;
    let second = start_second()?;
    first.wait_to_lead()?;
    first.signal("STOP")?;
    second.wait_to_lead()?;
    first.signal("CONT")?;
    first.wait_for("stopped")?;
    second.wait_to_lead()?;
    second.signal("TERM")?;
    first.wait_to_lead()?;
    check_exclusive(&[&first, &second]);
    Ok(())
}

#[test]
fn two_of_ours() -> Result<()> {
    let Some(cluster) = shared() else { return Ok(()) };
    let first = Candidate::ours(cluster, "two-of-ours", "one")?;
    check_pause(first, || Candidate::ours(cluster, "two-of-ours", "two"))
}

#[test]
fn ours_is_paused_while_the_go_client_waits() -> Result<()> {
    let (Some(cluster), Some(leader)) = (shared(), peer("leader")) else { return Ok(()) };
    let first = Candidate::ours(cluster, "ours-paused", "ours")?;
    check_pause(first, || Candidate::start(&leader, cluster.kubeconfig(), "ours-paused", "go"))
}

#[test]
fn the_go_client_is_paused_while_ours_waits() -> Result<()> {
    let (Some(cluster), Some(leader)) = (shared(), peer("leader")) else { return Ok(()) };
    let first = Candidate::start(&leader, cluster.kubeconfig(), "go-paused", "go")?;
    check_pause(first, || Candidate::ours(cluster, "go-paused", "ours"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_ends_the_term_before_the_next_begins() -> Result<()> {
    let (Some(cluster), Some(leader)) = (shared(), peer("leader")) else { return Ok(()) };
    let proxy = Proxy::start(cluster).await?;
    let program = Path::new(env!("CARGO_BIN_EXE_candidate"));
    let ours = Candidate::start(program, proxy.kubeconfig(), "partition", "ours")?;
    tokio::task::block_in_place(|| {
        ours.wait_to_lead()?;
        let go = Candidate::start(&leader, cluster.kubeconfig(), "partition", "go")?;
        ours.wait_to_lead()?;
        proxy.cut();
        ours.wait_for("stopped")?;
        go.wait_to_lead()?;
        proxy.heal();
        go.signal("TERM")?;
        ours.wait_to_lead()?;
        check_exclusive(&[&ours, &go]);
        let holder =
            cluster.kubectl_ok(["get", "lease", "partition", "-o=jsonpath={.spec.holderIdentity}"])?;
        assert_eq!(holder, "ours");
        let transitions =
            cluster.kubectl_ok(["get", "lease", "partition", "-o=jsonpath={.spec.leaseTransitions}"])?;
        assert_eq!(transitions, "2");
        Ok(())
    })
}

#[test]
fn a_stop_gives_the_lease_back() -> Result<()> {
    let Some(cluster) = shared() else { return Ok(()) };
    let mut candidate = Candidate::ours(cluster, "given-back", "one")?;
    candidate.wait_to_lead()?;
    candidate.signal("TERM")?;
    assert!(candidate.child.wait()?.success());
    let spec = cluster.kubectl_ok(["get", "lease", "given-back", "-o=jsonpath={.spec}"])?;
    assert!(!spec.contains("holderIdentity"), "{spec}");
    assert!(spec.contains("\"leaseDurationSeconds\":1"), "{spec}");
    Ok(())
}
