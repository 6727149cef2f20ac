//! After the last step, or an interrupt: everything the scenario made goes, everything it changed is put back.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{PAUSE, Stage, Undo};

/// Long enough for pods that take their whole grace to stop.
const PATIENCE: Duration = Duration::from_secs(120);

impl Stage<'_> {
    /// Puts back what can be, and says what could not.
    pub(in crate::demo) async fn clean_up(&mut self) -> Result<()> {
        if self.undo.is_empty() {
            return Ok(());
        }
        self.voice.say("\nCleaning up.");
        let mut faults = Vec::new();
        let mut namespaces = Vec::new();
        // The last first; namespaces take their time, so all are told before one is waited for.
        while let Some(undo) = self.undo.pop() {
            let result = match &undo {
                Undo::Namespace(name) => {
                    namespaces.push(name.clone());
                    self.live.remove_namespace(name).await
                }
                Undo::Object(object) => self.live.remove(object).await,
                Undo::Cordon(node) => self.live.set_cordoned(node, false).await,
                Undo::Pool(name) => self.live.remove_pool(name).await,
            };
            faults.extend(result.err().map(|error| format!("{error:#}")));
        }
        for name in namespaces {
            faults.extend(self.wait_for_end_of(&name).await.err().map(|error| format!("{error:#}")));
        }
        match faults.is_empty() {
            true => Ok(()),
            false => bail!("not everything could be removed: {}", faults.join("; ")),
        }
    }

    /// Waits until a namespace that was told to go is gone.
    pub(super) async fn wait_for_end_of(&mut self, name: &str) -> Result<()> {
        let begun = Instant::now();
        while self.live.namespace(name).await?.is_some() {
            if begun.elapsed() > PATIENCE {
                bail!("namespace {name} is still there after {} s", PATIENCE.as_secs());
            }
            self.voice.progress(&format!("namespace {name} is going"));
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}
