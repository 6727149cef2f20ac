//! Clients that follow the sandbox over a bad line: client-go's informer, kube-rs's watcher, koord-kit's cache.
//!
//! Objects are churned while connections drop and while the server forgets its history; in the end, and after every
//! round, all of them hold exactly what the server holds.

mod proxy;

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use koord_kit::cache::{Cache, CacheBuilder, ObjectKey};
use koord_sandbox::server::tls::Authority;
use koord_sandbox::server::{Api as Sandbox, Server, ServerConfig};
use koord_sandbox::store::Limits;
use koord_testkit::peer;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use proxy::Proxy;

/// Far more than a client that has lost nothing needs; the slowest waits half a minute between tries.
const LIMIT: Duration = Duration::from_secs(180);

/// Changes the server remembers: fewer than happen while a line is cut.
const HISTORY: usize = 64;

type Contents = BTreeMap<String, String>;

fn value_of(map: &ConfigMap) -> String {
    map.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_lose_nothing_on_a_bad_line() -> Result<()> {
    let Some(informer) = tokio::task::block_in_place(|| peer("reflector")) else { return Ok(()) };
    let limits = Limits { events: HISTORY, ..Limits::default() };
    let config = ServerConfig {
        listen: "127.0.0.1:0".parse()?,
        authority: Authority::generate()?,
        tokens: HashMap::new(),
        control: None,
    };
    let server = Server::start(Sandbox::new(limits), config).await?;
    let url = format!("https://{}", server.address());
    let proxy = Proxy::before(&url, server.kubeconfig()).await?;
    let mut churn = Churn::new(Api::namespaced(client(server.kubeconfig()).await?, "default"));
    churn.some(60).await?;
    let through = std::fs::read_to_string(proxy.kubeconfig())?;
    let mut followers = Followers::start(&informer, proxy.kubeconfig(), &through).await?;
    followers.converge(&churn, "at first").await?;

    for round in 0..3 {
        churn.some(40).await?;
        proxy.reset();
        churn.some(40).await?;
        followers.converge(&churn, &format!("round {round}, connections dropped")).await?;
        proxy.cut();
        // More than the server remembers: whoever comes back must begin anew.
        churn.some(HISTORY * 3).await?;
        proxy.reset();
        churn.some(10).await?;
        followers.converge(&churn, &format!("round {round}, history forgotten")).await?;
    }
    server.stop().await;
    Ok(())
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

/// Changes config maps, past the proxy, in an order that is the same every time.
struct Churn {
    api: Api<ConfigMap>,
    state: u64,
    written: u64,
}

impl Churn {
    fn new(api: Api<ConfigMap>) -> Churn {
        Churn { api, state: 1, written: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        // Knuth's MMIX generator; its upper bits are good enough.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    async fn some(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let name = format!("m{}", self.random(50));
            self.written += 1;
            let data = serde_json::json!({"data": {"value": self.written.to_string()}});
            match self.random(4) {
                0 => match self.api.delete(&name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    other => drop(other?),
                },
                _ => match self.api.patch(&name, &PatchParams::default(), &Patch::Merge(&data)).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        let mut map: ConfigMap = serde_json::from_value(data)?;
                        map.metadata.name = Some(name);
                        self.api.create(&PostParams::default(), &map).await?;
                    }
                    other => drop(other?),
                },
            }
        }
        Ok(())
    }

    async fn truth(&self) -> Result<Contents> {
        let listed = self.api.list(&ListParams::default()).await?;
        Ok(listed.iter().map(|map| (map.name_any(), value_of(map))).collect())
    }
}

/// Everybody who follows through the proxy.
struct Followers {
    informer: Informer,
    /// By plain lists in pages, and by streaming ones.
    watchers: Vec<Store<ConfigMap>>,
    cache: Cache<(String, String)>,
    stop: CancellationToken,
}

impl Followers {
    async fn start(informer: &Path, kubeconfig: &Path, text: &str) -> Result<Followers> {
        let stop = CancellationToken::new();
        let mut watchers = Vec::new();
        for config in [watcher::Config::default().page_size(20), watcher::Config::default().streaming_lists()]
        {
            let api: Api<ConfigMap> = Api::namespaced(client(text).await?, "default");
            let (store, writer) = reflector::store();
            let stream = watcher(api, config).default_backoff().reflect(writer);
            let ended = stop.clone();
            tokio::spawn(async move {
                // Errors are the watcher's own business: it tries again.
                let all = stream.for_each(|_| std::future::ready(()));
                ended.run_until_cancelled(all).await;
            });
            watchers.push(store);
        }
        let project = |key: &ObjectKey, map: ConfigMap| (key.name.to_string(), value_of(&map));
        let (cache, worker) = CacheBuilder::of(client(text).await?, project)
            .namespace::<ConfigMap>("default")
            .page_size(20)
            .build();
        tokio::spawn(worker.run(stop.clone()));
        Ok(Followers { informer: Informer::start(informer, kubeconfig)?, watchers, cache, stop })
    }

    /// Waits until all hold what the server holds.
    async fn converge(&mut self, churn: &Churn, when: &str) -> Result<()> {
        let truth = churn.truth().await?;
        let begun = std::time::Instant::now();
        loop {
            let wrong = self.differing(&truth)?;
            if wrong.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                bail!("{when}: {} does not hold the {} objects of the server", wrong.join(", "), truth.len());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn differing(&mut self, truth: &Contents) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let state = tokio::task::block_in_place(|| self.informer.ask())?;
        ensure!(state.faults.is_empty(), "client-go's informer: {:?}", state.faults);
        for (what, held) in [("client-go's store", &state.store), ("client-go's events", &state.replayed)] {
            if held != truth {
                wrong.push(what.to_owned());
            }
        }
        for (index, store) in self.watchers.iter().enumerate() {
            let held: Contents = store.state().iter().map(|map| (map.name_any(), value_of(map))).collect();
            if held != *truth {
                wrong.push(format!("kube-rs's watcher {index}"));
            }
        }
        let held: Contents = self.cache.snapshot().into_iter().map(|(_, entry)| (*entry).clone()).collect();
        if held != *truth {
            wrong.push("koord-kit's cache".to_owned());
        }
        Ok(wrong)
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The Go program; it ends with its input, and so with this process.
struct Informer {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct State {
    store: Contents,
    replayed: Contents,
    faults: Vec<String>,
}

impl Informer {
    fn start(program: &Path, kubeconfig: &Path) -> Result<Informer> {
        let mut child = Command::new(program)
            .arg(format!("-kubeconfig={}", kubeconfig.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let input = child.stdin.take().context("piped")?;
        let output = BufReader::new(child.stdout.take().context("piped")?);
        Ok(Informer { _child: child, input, output })
    }

    fn ask(&mut self) -> Result<State> {
        writeln!(self.input, "state")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}
