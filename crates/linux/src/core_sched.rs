//! Core-scheduling cookies: tasks with different cookies never run on one core at the same time.
//!
//! The kernel only copies a cookie to or from the calling thread, so that each change runs on a thread of its own
//! and ours keeps the cookie it has. Spec: koordlet-enforce 15.5, 18 (cookies).

use std::io;
use std::thread;

use rustix::process::Pid;
use rustix::thread::{
    CoreSchedulingScope, core_scheduling_cookie, create_core_scheduling_cookie, pull_core_scheduling_cookie,
    push_core_scheduling_cookie,
};

/// Which tasks a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Thread,
    /// All threads of the process.
    Process,
    /// All processes of the group.
    ProcessGroup,
}

impl Scope {
    fn raw(self) -> CoreSchedulingScope {
        match self {
            Scope::Thread => CoreSchedulingScope::Thread,
            Scope::Process => CoreSchedulingScope::ThreadGroup,
            Scope::ProcessGroup => CoreSchedulingScope::ProcessGroup,
        }
    }
}

/// Whether the kernel has cookies at all.
pub fn is_supported() -> bool {
    cookie(std::process::id()).is_ok()
}

/// The cookie of a thread; 0 for none.
pub fn cookie(pid: u32) -> io::Result<u64> {
    Ok(core_scheduling_cookie(process(pid)?, CoreSchedulingScope::Thread)?)
}

/// Gives tasks a cookie that nobody else has.
pub fn create(pid: u32, scope: Scope) -> io::Result<()> {
    Ok(create_core_scheduling_cookie(process(pid)?, scope.raw())?)
}

/// Gives each of `to` the cookie of `from`. Results stand in the order of `to`.
pub fn share(from: u32, to: &[u32], scope: Scope) -> io::Result<Vec<io::Result<()>>> {
    let from = process(from)?;
    apart(|| {
        pull_core_scheduling_cookie(from, CoreSchedulingScope::Thread)?;
        Ok(to.iter().map(|pid| push(*pid, scope)).collect())
    })
}

/// Takes the cookies of tasks away.
pub fn clear(pids: &[u32], scope: Scope) -> io::Result<Vec<io::Result<()>>> {
    // A new thread has the cookie of the one that made it, which here never has any.
    apart(|| Ok(pids.iter().map(|pid| push(*pid, scope)).collect()))
}

fn push(pid: u32, scope: Scope) -> io::Result<()> {
    Ok(push_core_scheduling_cookie(process(pid)?, scope.raw())?)
}

/// Runs on a thread that ends afterwards, and with it the cookie it took.
fn apart<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(work).join())
        .unwrap_or_else(|_| Err(io::Error::other("the helping thread failed")))
}

fn process(pid: u32) -> io::Result<Pid> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no process has that id"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Kernels without SMT or `CONFIG_SCHED_CORE` answer ENODEV or EINVAL.
    #[test]
    fn cookies_travel_where_the_kernel_has_them() {
        assert!(cookie(0).is_err());
        assert!(cookie(u32::MAX).is_err());
        let mut first = Command::new("sleep").arg("60").spawn().unwrap();
        let mut second = Command::new("sleep").arg("60").spawn().unwrap();
        let (a, b) = (first.id(), second.id());
        if is_supported() && create(a, Scope::Process).is_ok() {
            assert_ne!(cookie(a).unwrap(), 0);
            assert!(share(a, &[b], Scope::Process).unwrap().iter().all(Result::is_ok));
            assert_eq!(cookie(a).unwrap(), cookie(b).unwrap());
            assert_eq!(cookie(std::process::id()).unwrap(), 0);
            assert!(clear(&[a, b], Scope::Process).unwrap().iter().all(Result::is_ok));
            assert_eq!((cookie(a).unwrap(), cookie(b).unwrap()), (0, 0));
        }
        for child in [&mut first, &mut second] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
