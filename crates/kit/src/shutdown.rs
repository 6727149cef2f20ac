//! Stopping well: SIGTERM or SIGINT asks, every task is awaited, a second signal leaves at once.
//!
//! `main` makes one [`Shutdown`], hands [`Shutdown::token`] down, spawns its tasks through it and ends with
//! [`Shutdown::finish`]. Library code only ever sees the token, and nothing here exits the process: `main` does.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long tasks may take to finish what they have begun: under the 30 seconds a pod gets by default.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(25);

/// The process's wish to stop, and the tasks that must end before it does.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
    forced: CancellationToken,
    tasks: TaskTracker,
}

/// How the process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every task finished.
    Clean,
    /// The grace ran out with this many tasks still running.
    TimedOut(usize),
    /// A second signal asked to leave at once.
    Forced,
}

impl Shutdown {
    /// Without signals: the caller cancels [`Shutdown::token`]. For tests and embedded use.
    pub fn manual() -> Shutdown {
        Shutdown::default()
    }

    /// Listens for SIGTERM and SIGINT. Must be called within a tokio runtime.
    pub fn on_signals() -> std::io::Result<Shutdown> {
        let shutdown = Shutdown::default();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let (token, forced) = (shutdown.token.clone(), shutdown.forced.clone());
        // Not tracked: it must outlive the tasks to hear the second signal.
        tokio::spawn(async move {
            for step in [token, forced] {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                tracing::info!(signal = name, "stopping");
                step.cancel();
            }
        });
        Ok(shutdown)
    }

    /// Cancelled once the process should stop.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Spawns a task that [`Shutdown::finish`] waits for.
    pub fn spawn<F>(&self, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(task)
    }

    /// Waits for the wish to stop, then for every task, at most `grace`.
    pub async fn finish(self, grace: Duration) -> End {
        self.token.cancelled().await;
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => End::Clean,
            () = self.forced.cancelled() => End::Forced,
            () = tokio::time::sleep(grace) => {
                let left = self.tasks.len();
                tracing::warn!(tasks = left, grace_seconds = grace.as_secs(), "tasks did not stop in time");
                End::TimedOut(left)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_finish_their_work_before_the_end() {
        let shutdown = Shutdown::manual();
        let (done, mut finished) = tokio::sync::oneshot::channel();
        let token = shutdown.token();
        shutdown.spawn(async move {
            token.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            done.send(()).unwrap();
        });
        shutdown.token().cancel();
        assert_eq!(shutdown.finish(GRACE_DEFAULT).await, End::Clean);
        assert!(finished.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_task_is_left_behind_after_the_grace() {
        let shutdown = Shutdown::manual();
        shutdown.spawn(std::future::pending::<()>());
        shutdown.token().cancel();
        assert_eq!(shutdown.finish(Duration::from_secs(1)).await, End::TimedOut(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_wish_leaves_at_once() {
        let shutdown = Shutdown::manual();
        shutdown.spawn(std::future::pending::<()>());
        shutdown.token().cancel();
        shutdown.forced.cancel();
        assert_eq!(shutdown.finish(GRACE_DEFAULT).await, End::Forced);
    }
}
