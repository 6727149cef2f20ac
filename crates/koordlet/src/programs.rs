//! Programs of the host, run where they are, each for a few seconds at most.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use koord_linux::process::kill_group;

/// How long a program may take. Longer than `iptables` may wait for others, as the shaper of traffic tells it.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks whether a program that says nothing any more has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long one that was killed may take to end. One that waits for a driver in the kernel may never do so.
const END_WITHIN: Duration = Duration::from_secs(1);
/// What a chroot and nsenter answer when there is no such program.
const NOT_FOUND: i32 = 127;

/// Why a program did not do what it was told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// The words, and what it said to them.
    #[error("{0}: {1}")]
    Refused(String, String),
    #[error("{0}: not installed")]
    Missing(String),
    /// It was ended. Others of its kind would hang as well.
    #[error("{0}: did not end in time")]
    Hung(String),
}

/// Runs a program and gives what it prints; or why it failed.
pub(crate) trait Programs: Send + Sync {
    fn run(&self, words: &[&str]) -> Result<String, Fault>;
}

/// The host's own programs.
pub(crate) struct Host {
    /// The words before the program's own that bring it to the host's files; none when this process sees them itself.
    pub(crate) through: Vec<String>,
    pub(crate) time_limit: Duration,
    pub(crate) stuck: Stuck,
}

/// Programs that were killed and did not end, since the kernel keeps them. While it does, another of the same name would
/// stay as well, with the threads that read what it prints: it is not begun.
#[derive(Clone, Default)]
pub(crate) struct Stuck(Arc<Mutex<BTreeMap<String, Child>>>);

impl Stuck {
    fn keep(&self, name: &str, child: Child) {
        tracing::warn!(
            name,
            pid = child.id(),
            "a program was killed and does not end; it hangs in the kernel"
        );
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), child);
    }

    fn has(&self, name: &str) -> bool {
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = children.get_mut(name).is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !is_there {
            children.remove(name);
        }
        is_there
    }
}

impl Programs for Host {
    fn run(&self, words: &[&str]) -> Result<String, Fault> {
        let name = words.first().copied().unwrap_or_default();
        if self.stuck.has(name) {
            return Err(Fault::Hung(words.join(" ")));
        }
        let mut all = self.through.iter().map(String::as_str).chain(words.iter().copied());
        let Some(program) = all.next() else { return Ok(String::new()) };
        let mut command = Command::new(program);
        let refused = |said: &str| Fault::Refused(words.join(" "), said.to_owned());
        let missing = || Fault::Missing(words.join(" "));
        match finish(command.args(all), self.time_limit) {
            Ok(Outcome::Ended(ended)) if ended.status.success() => Ok(ended.printed),
            Ok(Outcome::Ended(ended)) if ended.status.code() == Some(NOT_FOUND) => Err(missing()),
            Ok(Outcome::Ended(ended)) => Err(refused(ended.said())),
            Ok(Outcome::Killed(left)) => {
                left.into_iter().for_each(|child| self.stuck.keep(name, child));
                Err(Fault::Hung(words.join(" ")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing()),
            Err(error) => Err(refused(&error.to_string())),
        }
    }
}

/// What became of a program.
enum Outcome {
    Ended(Ended),
    /// It had to be ended, with all that it began; what is left of it when it does not go.
    Killed(Option<Child>),
}

/// A program that came to its end.
struct Ended {
    status: ExitStatus,
    printed: String,
    complained: String,
}

impl Ended {
    /// Why it failed, in its own words. Some programs complain where they should print.
    fn said(&self) -> &str {
        if self.complained.trim().is_empty() { self.printed.trim() } else { self.complained.trim() }
    }
}

/// Runs it to its end.
fn finish(command: &mut Command, limit: Duration) -> io::Result<Outcome> {
    let deadline = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let pipes = gather(child.stdout.take()).and_then(|printed| Ok((printed, gather(child.stderr.take())?)));
    let (printed, complained) = match pipes {
        Ok(pipes) => pipes,
        Err(error) => {
            end(child, END_WITHIN);
            return Err(error);
        }
    };
    let left = || deadline.saturating_duration_since(Instant::now());
    let texts = (printed.recv_timeout(left()), complained.recv_timeout(left()));
    let status = match &texts {
        (Ok(_), Ok(_)) => wait(&mut child, deadline)?,
        _ => None,
    };
    let (Some(status), (Ok(printed), Ok(complained))) = (status, texts) else {
        return Ok(Outcome::Killed(end(child, END_WITHIN)));
    };
    Ok(Outcome::Ended(Ended { status, printed, complained }))
}

/// Reads a pipe to its end beside everything else, for a full pipe would stop the program.
fn gather(pipe: Option<impl Read + Send + 'static>) -> io::Result<Receiver<String>> {
    let (sender, receiver) = channel();
    thread::Builder::new().name("program".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a fault is all there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        // Nobody listens any more when it took too long.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    })?;
    Ok(receiver)
}

/// Kills it with all that it began, for others of the group may have kept its pipes, and waits a while; what does not go.
fn end(mut child: Child, within: Duration) -> Option<Child> {
    kill_group(child.id());
    matches!(wait(&mut child, Instant::now() + within), Ok(None)).then_some(child)
}

fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use koord_linux::process::ProcessStat;
    use koord_linux::root::Root;

    use super::*;

    /// Whether it comes to pass before long.
    fn soon(is_so: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() && Instant::now() < deadline {
            thread::yield_now();
        }
        is_so()
    }

    fn is_alive(pid: u32) -> bool {
        ProcessStat::read(&Root::host("/"), pid).is_ok_and(|stat| stat.state != 'Z')
    }

    #[test]
    fn what_a_program_began_ends_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pid");
        for script in ["sleep 600 & echo $! > $0; wait; true", "sleep 600 & echo $! > $0"] {
            let _ = std::fs::remove_file(&path);
            // As long as it takes on this machine until something has begun.
            let mut limit = Duration::from_millis(50);
            let pid = loop {
                let mut command = Command::new("sh");
                command.args(["-c", script, path.to_str().unwrap()]);
                assert!(matches!(finish(&mut command, limit), Ok(Outcome::Killed(None))), "{script}");
                if let Ok(pid) = std::fs::read_to_string(&path).unwrap_or_default().trim().parse() {
                    break pid;
                }
                limit *= 4;
            };
            assert!(soon(|| !is_alive(pid)), "{script}");
        }
    }

    /// Otherwise each would leave threads and a process behind for as long as the kernel keeps it.
    #[test]
    fn nothing_is_begun_beside_one_that_cannot_be_ended() {
        let host = |stuck| Host { through: Vec::new(), time_limit: Duration::from_secs(600), stuck };
        let stuck = Stuck::default();
        let child = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let pid = child.id();
        stuck.keep("echo", child);
        for _ in 0..2 {
            assert_eq!(host(stuck.clone()).run(&["echo", "a"]), Err(Fault::Hung("echo a".into())));
        }
        assert_eq!(host(stuck.clone()).run(&["true"]), Ok(String::new()), "another program");
        kill_group(pid);
        assert!(soon(|| host(stuck.clone()).run(&["echo", "a"]) == Ok("a\n".into())), "it has ended");
        assert!(ProcessStat::read(&Root::host("/"), pid).is_err(), "its end was taken note of");
    }

    #[test]
    fn ends() {
        let shell =
            |script: &str, limit| match finish(Command::new("sh").args(["-c", script]), limit).unwrap() {
                Outcome::Ended(ended) => Some(ended),
                Outcome::Killed(left) => {
                    assert!(left.is_none(), "{script}");
                    None
                }
            };
        let long = Duration::from_secs(600);
        let ended = shell("echo a; echo b >&2; exit 3", long).unwrap();
        assert_eq!((ended.printed.as_str(), ended.complained.as_str()), ("a\n", "b\n"));
        assert_eq!(ended.status.code(), Some(3));
        let much = shell("head -c 1000000 /dev/zero", long).unwrap();
        assert_eq!(much.printed.len(), 1_000_000, "more than a pipe holds");
        for script in ["exec sleep 600", "exec sleep 600 >&- 2>&-", "sleep 600; true"] {
            assert!(shell(script, Duration::from_millis(50)).is_none(), "{script}");
        }
        let host = Host { through: Vec::new(), time_limit: long, stuck: Stuck::default() };
        assert_eq!(host.run(&["/no/such/program"]), Err(Fault::Missing("/no/such/program".into())));
        let host = Host { through: vec!["sh".into(), "-c".into(), "exec /no/such/program".into()], ..host };
        assert_eq!(host.run(&["tool"]), Err(Fault::Missing("tool".into())), "as a chroot says it");
        let host = Host { through: vec!["sh".into(), "-c".into(), "exit 1".into()], ..host };
        assert!(matches!(host.run(&["tool"]), Err(Fault::Refused(..))));
    }
}
