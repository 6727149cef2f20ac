//! Watch caches on a real API server that is paused, killed and made to forget.

mod proxy;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use koord_api::crd::reservation::Reservation;
use koord_kit::cache::{Cache, CacheBuilder, Delta, Deltas, ObjectKey};
use koord_kit::client::{ClientConnection, ClientOptions, connect};
use koord_kit::metrics::{Format, KitMetrics, Metrics};
use koord_testkit::ControlPlane;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use tokio_util::sync::CancellationToken;

use proxy::Proxy;

const LIMIT: Duration = Duration::from_secs(120);

type Contents = BTreeMap<String, String>;

/// A cache of config maps and a reader that replays its deltas.
struct World {
    /// Writes past the proxy.
    api: Api<ConfigMap>,
    cache: Cache<(String, String)>,
    deltas: Deltas<(String, String)>,
    replayed: Contents,
    metrics: Metrics,
    stop: CancellationToken,
}

fn value_of(map: &ConfigMap) -> String {
    map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default()
}

async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let connection =
        ClientConnection { kubeconfig: kubeconfig.display().to_string(), qps: -1.0, ..Default::default() };
    Ok(connect(&ClientOptions::new("koord-e2e", connection)).await?)
}

impl World {
    async fn new(cluster: &ControlPlane, proxy: &Proxy) -> Result<World> {
        let metrics = Metrics::new();
        let project = |key: &ObjectKey, map: ConfigMap| (key.name.to_string(), value_of(&map));
        let (cache, worker) = CacheBuilder::of(client(proxy.kubeconfig()).await?, project)
            .namespace::<ConfigMap>("default")
            .page_size(50)
            .metrics(&KitMetrics::new(&metrics))
            .build();
        let deltas = cache.subscribe(16);
        let stop = CancellationToken::new();
        tokio::spawn(worker.run(stop.clone()));
        let api = Api::namespaced(client(cluster.kubeconfig()).await?, "default");
        Ok(World { api, cache, deltas, replayed: Contents::new(), metrics, stop })
    }

    async fn put(&self, name: &str, value: &str) -> Result<()> {
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}});
        let params = PatchParams::apply("e2e").force();
        self.api.patch(name, &params, &Patch::Apply(map)).await.with_context(|| format!("put {name}"))?;
        Ok(())
    }

    async fn recreate(&self, name: &str, value: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await?;
        let map: ConfigMap = serde_json::from_value(
            serde_json::json!({"metadata": {"name": name}, "data": {"value": value}}),
        )?;
        self.api.create(&PostParams::default(), &map).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Reads deltas until the cache, the replay and the server agree.
    async fn converge(&mut self, what: &str) -> Result<Vec<String>> {
        let listed = self.api.list(&ListParams::default()).await?;
        let truth: Contents = listed.iter().map(|map| (map.name_any(), value_of(map))).collect();
        let mut words = Vec::new();
        let agree = async {
            while self.replayed != truth || self.held() != truth {
                let Some(delta) = self.deltas.next().await else { break };
                words.extend(self.replay(delta));
            }
        };
        let agreed = tokio::time::timeout(LIMIT, agree).await;
        assert!(agreed.is_ok(), "{what}: {:?} against {:?}", self.replayed.len(), truth.len());
        Ok(words)
    }

    fn held(&self) -> Contents {
        self.cache.snapshot().into_iter().map(|(_, entry)| (*entry).clone()).collect()
    }

    fn replay(&mut self, delta: Delta<(String, String)>) -> Option<String> {
        match delta {
            Delta::Added(new) => {
                assert_eq!(self.replayed.insert(new.0.clone(), new.1.clone()), None, "{} added twice", new.0);
                Some(format!("+{}", new.0))
            }
            Delta::Updated { old, new } => {
                let before = self.replayed.insert(new.0.clone(), new.1.clone());
                assert_eq!(before.as_ref(), Some(&old.1), "{}", new.0);
                Some(format!("~{}", new.0))
            }
            Delta::Deleted(old) => {
                assert_eq!(self.replayed.remove(&old.0).as_ref(), Some(&old.1), "{}", old.0);
                Some(format!("-{}", old.0))
            }
            Delta::Synced => None,
        }
    }

    fn relists(&self, reason: &str) -> bool {
        let page = self.metrics.render(Format::Prometheus);
        page.contains(&format!("koord_watch_cache_relists_total{{kind=\"ConfigMap\",reason=\"{reason}\"}}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn start() -> Result<Option<ControlPlane>> {
    // A control plane of our own, for it will be mistreated.
    match ControlPlane::builder().and_then(|builder| builder.with_controller_manager(false).start()) {
        Ok(cluster) => Ok(Some(cluster)),
        // Says why, and fails where a skip is a failure.
        Err(error) if error.is_unavailable() && koord_testkit::shared().is_none() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_whatever_happens_to_the_server() -> Result<()> {
    let Some(cluster) = tokio::task::block_in_place(start)? else { return Ok(()) };
    let proxy = Proxy::start(&cluster).await?;
    let mut world = World::new(&cluster, &proxy).await?;
    for number in 0..120 {
        world.put(&format!("m{number}"), "1").await?;
    }
    world.converge("more than two pages").await?;

    cluster.pause_apiserver()?;
    let api = world.api.clone();
    let during = tokio::spawn(async move { api.delete("m0", &DeleteParams::default()).await.map(|_| ()) });
    cluster.resume_apiserver()?;
    during.await??;
    world.put("m1", "2").await?;
    world.converge("after a pause").await?;

    tokio::task::block_in_place(|| cluster.stop_apiserver())?;
    tokio::task::block_in_place(|| cluster.start_apiserver())?;
    world.put("m2", "2").await?;
    world.recreate("m3", "2").await?;
    world.converge("after a restart").await?;
    assert!(world.cache.is_synced());

    // Away for long: the server restarts and remembers only what came after that.
    proxy.cut();
    world.put("m4", "2").await?;
    world.recreate("m5", "2").await?;
    world.delete("m6").await?;
    world.put("new", "1").await?;
    tokio::task::block_in_place(|| cluster.stop_apiserver())?;
    tokio::task::block_in_place(|| cluster.start_apiserver())?;
    world.put("m7", "2").await?;
    world.put("m7", "3").await?;
    proxy.heal();
    let words = world.converge("after a long absence").await?;
    assert!(world.relists("expired"), "{}", world.metrics.render(Format::Prometheus));
    for word in ["~m4", "-m5", "+m5", "-m6", "+new", "~m7"] {
        assert!(words.iter().any(|seen| seen == word), "{word} in {words:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_crd_is_named_until_it_is_installed() -> Result<()> {
    let Some(cluster) = tokio::task::block_in_place(koord_testkit::shared) else { return Ok(()) };
    let client = client(cluster.kubeconfig()).await?;
    let name = |key: &ObjectKey, _: Reservation| key.name.to_string();
    let (cache, worker) = CacheBuilder::of(client, name).build();
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    let missing = "reservations.scheduling.koordinator.sh/v1alpha1 is not served by this cluster";
    tokio::task::block_in_place(|| {
        koord_testkit::wait_until(LIMIT, "the missing kind to be named", || {
            cache.check().err().filter(|text| text.starts_with(missing))
        })
    })?;
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    tokio::task::block_in_place(|| cluster.install_crds(&crds))?;
    tokio::time::timeout(LIMIT, cache.synced()).await?;
    assert_eq!(cache.check(), Ok(()));
    stop.cancel();
    task.await?;
    Ok(())
}
