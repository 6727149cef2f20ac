//! The life of pods as the kernel tells it: a new pod is asked for at once. Spec: koordlet-observe 3.5.

use std::sync::Arc;
use std::time::Duration;

use koord_linux::pod_watch::{PodNews, PodWatch};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How often folders that kubelet has not made yet are looked for.
///
/// Differs: upstream does not start without them.
const RETRY: Duration = Duration::from_secs(10);

/// Tells `news` of every pod that appears, until told to stop. Without inotify pods are found by asking in turn.
pub async fn run(watch: std::io::Result<PodWatch>, news: Arc<Notify>, stop: CancellationToken) {
    let mut watched = match watch.and_then(register) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::warn!(%error, "cgroups cannot be watched, new pods are found by asking in turn");
            return;
        }
    };
    tell(watched.get_mut().rescan(), &news);
    let mut retry = tokio::time::interval(RETRY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = retry.tick() => {
                if !watched.get_ref().is_complete() {
                    tell(watched.get_mut().rescan(), &news);
                }
            }
            ready = watched.readable_mut() => {
                let Ok(mut guard) = ready else { return };
                let read = guard.get_inner_mut().read();
                guard.clear_ready();
                match read {
                    Ok(told) => tell(told, &news),
                    Err(error) => {
                        tracing::warn!(%error, "news of cgroups cannot be read, new pods are found by asking in turn");
                        return;
                    }
                }
            }
        }
    }
}

/// Its successor is unsafe, which this project does without.
#[expect(deprecated, reason = "what it warns of cannot be: a watch owns its descriptor until it is dropped")]
fn register(watch: PodWatch) -> std::io::Result<AsyncFd<PodWatch>> {
    AsyncFd::new(watch)
}

fn tell(told: Vec<PodNews>, news: &Notify) {
    for item in &told {
        tracing::debug!(?item, "cgroup");
    }
    if told.iter().any(|item| matches!(item, PodNews::PodAdded { .. })) {
        news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use koord_linux::cgroup::{Cgroups, Driver, Version};
    use koord_linux::root::Root;

    use super::*;

    #[tokio::test]
    async fn a_new_pod_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::host(folder.path());
        let cgroups = Cgroups::new(&root, Version::V2, Driver::Cgroupfs);
        let pods = root.cgroup.join("kubepods");
        for class in ["burstable", "besteffort"] {
            std::fs::create_dir_all(pods.join(class)).unwrap();
        }
        let news = Arc::new(Notify::new());
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(PodWatch::new(&cgroups), news.clone(), stop.clone()));
        // Whether it is seen by the first look or told by the kernel, it is told.
        std::fs::create_dir(pods.join("burstable/pod1234")).unwrap();
        tokio::time::timeout(Duration::from_secs(60), news.notified()).await.unwrap();
        std::fs::create_dir(pods.join("pod5678")).unwrap();
        tokio::time::timeout(Duration::from_secs(60), news.notified()).await.unwrap();
        stop.cancel();
        task.await.unwrap();
    }
}
