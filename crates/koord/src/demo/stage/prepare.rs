//! Before the first step: nodes where it is a sandbox, enough of everything, nothing left of an earlier run.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use koord_sandbox::nodes::shape;

use super::{PAUSE, Stage, Undo, count_nodes};

/// How long new nodes of a sandbox may take to be ready.
const NODES_PATIENCE: Duration = Duration::from_secs(60);

/// Where a node's zone stands.
const ZONE: &str = "topology.kubernetes.io/zone";

impl Stage<'_> {
    /// Makes the cluster fit for the scenario, or says what it lacks.
    pub(super) async fn prepare(&mut self) -> Result<()> {
        let version = self.live.version().await?;
        let pools = self.live.pools().await?;
        let place = if pools.is_some() { "sandbox" } else { "cluster" };
        self.voice.say(&format!("\nKubernetes {version}, a {place}."));
        let is_sandbox = pools.is_some();
        if let Some(pools) = pools {
            for text in &self.scenario.shapes {
                let pool = shape::flag(text).map_err(|error| anyhow::anyhow!("{error}"))?;
                let found = pools.get(&pool.name).copied().unwrap_or(0);
                if found == 0 {
                    self.voice.say(&format!("Adding {}.", count_nodes(pool.count.try_into()?)));
                    self.undo.push(Undo::Pool(pool.name));
                    self.live.add_pool(text).await.context("cannot add nodes")?;
                } else if found < pool.count {
                    bail!("the sandbox has {found} nodes called {}-…, {} are needed", pool.name, pool.count);
                }
            }
        }
        self.clear_leftovers().await?;
        self.check_needs(is_sandbox).await
    }

    async fn check_needs(&mut self, is_sandbox: bool) -> Result<()> {
        let needs = self.scenario.needs;
        let begun = Instant::now();
        loop {
            let nodes = self.live.nodes().await.context("cannot list nodes")?;
            let fit: Vec<_> = nodes.iter().filter(|node| node.takes_pods()).collect();
            let zones: BTreeSet<&String> = fit.iter().filter_map(|node| node.labels.get(ZONE)).collect();
            if fit.len() >= needs.nodes && zones.len() >= needs.zones {
                let told = format!("{} ready, in {} zones.", count_nodes(fit.len()), zones.len());
                self.voice.say(&told);
                return Ok(());
            }
            if !is_sandbox || begun.elapsed() > NODES_PATIENCE {
                bail!(
                    "this scenario needs {} in {} zones; {} in {} zones take pods here",
                    count_nodes(needs.nodes),
                    needs.zones,
                    fit.len(),
                    zones.len()
                );
            }
            self.voice.progress(&format!("{} of {} nodes ready", fit.len(), needs.nodes));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A run that was killed could not clean up. What is not ours is left alone, and ends this run.
    async fn clear_leftovers(&mut self) -> Result<()> {
        let names: BTreeSet<&String> = self.scenario.parts.iter().flat_map(|part| &part.namespaces).collect();
        for name in names {
            match self.live.namespace(name).await? {
                None => {}
                Some(true) => {
                    self.voice.say(&format!("Removing namespace {name}, left by an earlier run."));
                    self.live.remove_namespace(name).await?;
                    self.wait_for_end_of(name).await?;
                }
                Some(false) => {
                    bail!("namespace {name} exists and is not of this scenario; it is left alone")
                }
            }
        }
        for node in self.live.nodes().await.context("cannot list nodes")? {
            if self.live.has_cordoned(&node) {
                self.voice.say(&format!("Uncordoning node {}, cordoned by an earlier run.", node.name));
                self.live.set_cordoned(&node.name, false).await?;
            }
        }
        Ok(())
    }
}
