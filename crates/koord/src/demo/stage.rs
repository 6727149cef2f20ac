//! Playing a scenario: acts, waits for each step's state, tells what happens, and leaves the cluster as it was.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::expect::{self, Verdict};
use super::live::{Live, tell};
use super::scenario::{Action, Nodes, ObjectRef, Part, Scenario, Step};
use super::text::{self, Voice};
use super::world::{self, Node, Pod, Waiting, World};
use crate::explain::{self, Format, Scheduler};
use crate::sandbox::Place;

mod clean;
mod prepare;

/// Between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(250);

/// How many different explanations are shown at once; the rest is counted.
const EXPLAINED_MAX: usize = 3;

/// Columns for it; wider than other text, for it stands further in.
const EXPLANATION_WIDTH: usize = 112;

/// How one step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    Reached,
    Missed,
    NotRun,
}

#[derive(Debug)]
pub(super) struct StepReport {
    pub(super) part: String,
    pub(super) step: String,
    pub(super) outcome: StepOutcome,
    pub(super) took: Duration,
}

/// What to put back, in the order it was done.
#[derive(Debug)]
enum Undo {
    Namespace(String),
    Object(ObjectRef),
    Cordon(String),
    Pool(String),
}

/// A scenario on a cluster.
pub(super) struct Stage<'s> {
    scenario: &'s Scenario,
    live: Live,
    voice: Voice,
    /// Who can explain; without one the words of the pods' conditions must do.
    scheduler: Option<Scheduler>,
    /// The sandbox that runs here, which knows who explains nodes.
    place: Option<Place>,
    world: World,
    /// Pods by UID and what was said of them, so that nothing is explained twice.
    explained: BTreeSet<(String, String)>,
    undo: Vec<Undo>,
    reports: Vec<StepReport>,
}

impl<'s> Stage<'s> {
    pub(super) fn new(
        scenario: &'s Scenario,
        live: Live,
        voice: Voice,
        scheduler: Option<Scheduler>,
        place: Option<Place>,
    ) -> Stage<'s> {
        let (world, explained, undo) = (World::default(), BTreeSet::new(), Vec::new());
        let reports = scenario
            .parts
            .iter()
            .flat_map(|part| part.steps.iter().map(move |step| (part, step)))
            .map(|(part, step)| StepReport {
                part: part.name.clone(),
                step: step.title.clone(),
                outcome: StepOutcome::NotRun,
                took: Duration::ZERO,
            })
            .collect();
        Stage { scenario, live, voice, scheduler, place, world, explained, undo, reports }
    }

    /// Plays every part. A step that misses its state ends its part, for the next steps build on it.
    pub(super) async fn play(&mut self) -> Result<()> {
        self.voice.heading(&self.scenario.title);
        self.voice.paragraphs(&self.scenario.text, 0);
        self.prepare().await?;
        let mut number = 0;
        for part in &self.scenario.parts {
            if self.scenario.parts.len() > 1 {
                self.voice.heading(&part.title);
                self.voice.paragraphs(&part.text, 0);
            }
            self.make_namespaces(part).await?;
            let mut is_on = true;
            for step in &part.steps {
                let report = number;
                number += 1;
                if !is_on {
                    continue;
                }
                let title = format!("\n[{number}/{}] {}", self.reports.len(), step.title);
                self.voice.say(&title);
                self.voice.paragraphs(&step.text, 4);
                let begun = Instant::now();
                is_on = self.step(part, step).await;
                self.reports[report].took = begun.elapsed();
                self.reports[report].outcome = if is_on { StepOutcome::Reached } else { StepOutcome::Missed };
            }
        }
        Ok(())
    }

    /// The table, and whether every step reached its state. Where nothing began, nothing is to be told.
    pub(super) fn summary(&mut self) -> Result<()> {
        if self.reports.iter().all(|report| report.outcome == StepOutcome::NotRun) {
            bail!("no step was run");
        }
        self.voice.heading("Summary");
        self.voice.say(&text::summary(&self.reports));
        let reached = self.reports.iter().filter(|it| it.outcome == StepOutcome::Reached).count();
        let took: Duration = self.reports.iter().map(|it| it.took).sum();
        let all = self.reports.len();
        let line = format!(
            "\n{reached} of {all} steps reached their expected state, in {:.1} s.",
            took.as_secs_f64()
        );
        self.voice.say(&line);
        if reached == all {
            Ok(())
        } else {
            bail!("{} of {all} steps did not reach their state", all - reached)
        }
    }

    /// Whether the step reached its state. What went wrong is told.
    async fn step(&mut self, part: &Part, step: &Step) -> bool {
        let result = match self.act_all(part, step).await {
            Ok(()) => self.wait(part, step).await,
            Err(error) => {
                self.voice.say(&format!("    FAILED  {error:#}"));
                return false;
            }
        };
        if !result {
            // What was told before may not be why it waits now.
            self.explained.clear();
        }
        if step.explains || !result {
            self.explain_waiting().await;
        }
        if let Some(node) = &step.explains_node {
            self.explain_node(node).await;
        }
        result
    }

    async fn act_all(&mut self, part: &Part, step: &Step) -> Result<()> {
        // Who is here before the step may be gone after it.
        self.observe(part, step).await?;
        for action in &step.actions {
            self.act(action).await?;
        }
        Ok(())
    }

    async fn act(&mut self, action: &Action) -> Result<()> {
        match action {
            Action::Apply { object, manifest } => {
                let object = self.live.placed(object).await?;
                self.voice.say(&format!("    apply {}", tell(&object)));
                // Noted first: an object that was made while we were interrupted must go, too.
                if object.namespace.is_empty() {
                    self.undo.push(Undo::Object(object.clone()));
                }
                self.live.apply(&object, manifest).await
            }
            Action::Delete(object) => {
                let object = self.live.placed(object).await?;
                self.voice.say(&format!("    delete {}", tell(&object)));
                self.live.delete(&object).await
            }
            Action::Scale { object, replicas } => {
                let object = &self.live.placed(object).await?;
                self.voice.say(&format!("    scale {} to {replicas}", tell(object)));
                self.live.scale(object, *replicas).await
            }
            Action::Patch { object, patch, how } => {
                let object = &self.live.placed(object).await?;
                self.voice.say(&format!("    patch {}", tell(object)));
                self.live.patch(object, patch, *how).await
            }
            Action::PatchAll { objects, selector, patch, how } => {
                let objects = &self.live.placed(objects).await?;
                let meant = self.live.find(objects, &selector.text).await?;
                if meant.is_empty() {
                    bail!("there is no {} with {}", objects.kind, selector.text);
                }
                self.voice.say(&format!(
                    "    patch every {} with {}: {}",
                    objects.kind,
                    selector.text,
                    meant.len()
                ));
                for object in &meant {
                    self.live.patch(object, patch, *how).await?;
                }
                Ok(())
            }
            Action::Cordon(nodes) => self.cordon(nodes, true).await,
            Action::Uncordon(nodes) => self.cordon(nodes, false).await,
        }
    }

    /// Only nodes that this scenario cordoned are uncordoned again, at the end at the latest.
    async fn cordon(&mut self, nodes: &Nodes, is_cordoned: bool) -> Result<()> {
        let known = self.live.nodes().await?;
        let hosts: Vec<&String> = match nodes {
            Nodes::Hosting(pods) => {
                self.world.pods.iter().filter(|pod| pod.is_one_of(pods)).flat_map(|pod| &pod.node).collect()
            }
            _ => Vec::new(),
        };
        let is_meant = |node: &Node| match nodes {
            Nodes::Named(name) => node.name == *name,
            Nodes::Selected(labelled) => labelled.selector.matches(&node.labels),
            Nodes::Hosting(_) => hosts.contains(&&node.name),
        };
        let meant: Vec<&Node> = known.iter().filter(|node| is_meant(node)).collect();
        if meant.is_empty() {
            bail!("no node is meant by {nodes:?}");
        }
        let word = if is_cordoned { "cordon" } else { "uncordon" };
        self.voice.say(&format!("    {word} {}", count_nodes(meant.len())));
        for node in meant {
            if is_cordoned == node.is_cordoned || (!is_cordoned && !self.live.has_cordoned(node)) {
                continue;
            }
            if is_cordoned {
                self.undo.push(Undo::Cordon(node.name.clone()));
            }
            self.live.set_cordoned(&node.name, is_cordoned).await?;
            if !is_cordoned {
                self.undo.retain(|undo| !matches!(undo, Undo::Cordon(name) if *name == node.name));
            }
        }
        Ok(())
    }

    /// Waits until all expectations hold at one moment.
    async fn wait(&mut self, part: &Part, step: &Step) -> bool {
        let deadline = Instant::now() + step.timeout;
        loop {
            let observed = self.observe(part, step).await;
            let verdicts: Vec<Verdict> =
                step.expectations.iter().map(|expectation| expect::judge(expectation, &self.world)).collect();
            if observed.is_ok() && verdicts.iter().all(|verdict| verdict.is_met) {
                for verdict in &verdicts {
                    self.voice.say(&format!("    ok      {}", verdict.found));
                }
                return true;
            }
            if Instant::now() >= deadline {
                self.tell_missed(step, &verdicts, observed.err());
                return false;
            }
            let open = verdicts.iter().find(|verdict| !verdict.is_met).map(|verdict| verdict.found.clone());
            match observed {
                Ok(()) => self.voice.progress(&open.unwrap_or_default()),
                Err(error) => self.voice.progress(&format!("{error:#}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn tell_missed(&mut self, step: &Step, verdicts: &[Verdict], error: Option<anyhow::Error>) {
        for verdict in verdicts {
            let word = if verdict.is_met { "ok    " } else { "MISSED" };
            self.voice.say(&format!("    {word}  {}", verdict.found));
        }
        if let Some(error) = error {
            self.voice.say(&format!("    MISSED  {error:#}"));
        }
        self.voice.say(&format!("            waited for {} s", step.timeout.as_secs_f64()));
        let stuck: Vec<String> = self.world.pods.iter().filter_map(Pod::trouble).collect();
        for line in stuck.iter().take(EXPLAINED_MAX) {
            self.voice.say(&format!("            {line}"));
        }
        if let more @ 1.. = stuck.len().saturating_sub(EXPLAINED_MAX) {
            self.voice.say(&format!("            and {more} more pods do not run"));
        }
    }

    /// Looks at everything that the step speaks of.
    async fn observe(&mut self, part: &Part, step: &Step) -> Result<()> {
        let mut pods = Vec::new();
        for namespace in &part.namespaces {
            pods.extend(self.live.pods(namespace).await?);
        }
        for pod in &pods {
            self.world.seen.insert(pod.uid.clone(), pod.clone());
        }
        self.world.pods = pods;
        for object in step.expectations.iter().filter_map(expect::objects) {
            let found = self.live.get(object).await?;
            self.world.objects.insert(object.clone(), found);
        }
        // Labels of nodes hardly change, and nodes are many: they are asked for again only for one that is new.
        let is_known = |name: &String| self.world.nodes.iter().any(|node| node.name == *name);
        let has_news = self.world.nodes.is_empty()
            || !self.world.pods.iter().filter_map(|pod| pod.node.as_ref()).all(is_known);
        if step.expectations.iter().any(expect::needs_amounts)
            || step.expectations.iter().any(expect::needs_nodes) && has_news
        {
            self.world.nodes = self.live.nodes().await?;
        }
        if step.expectations.iter().any(expect::needs_usage) {
            self.observe_usage().await?;
        }
        if step.expectations.iter().any(expect::needs_events) {
            self.world.preempted.clear();
            for namespace in &part.namespaces {
                self.world.preempted.extend(self.live.preempted(namespace).await?);
            }
        }
        Ok(())
    }

    /// What pods use, by the reports of their nodes.
    async fn observe_usage(&mut self) -> Result<()> {
        let nodes: BTreeSet<String> = self.world.pods.iter().filter_map(|pod| pod.node.clone()).collect();
        self.world.used.clear();
        for name in nodes {
            let object = ObjectRef {
                api_version: "slo.koordinator.sh/v1alpha1".to_owned(),
                kind: "NodeMetric".to_owned(),
                namespace: String::new(),
                name,
            };
            let metric = self.live.get(&object).await?;
            self.world.used.extend(metric.iter().flat_map(world::used));
        }
        Ok(())
    }

    /// Says what a node's agent does, or what the node lends, where there is a sandbox whose parts can be asked.
    async fn explain_node(&mut self, name: &str) {
        let running = self.place.as_ref().and_then(Place::running);
        let told = match &running {
            None => Ok("nobody here can be asked about it".to_owned()),
            Some(running) => explain::node(name, running).await,
        };
        let text = told.map_or_else(|error| format!("{error:#}"), |text| indented(&text));
        self.voice.say(&format!("    why     {name}:\n{}\n", text::wrap(&text, 12, EXPLANATION_WIDTH)));
    }

    /// Says why pods wait, by the scheduler's own account where it gives one. What was told before is not repeated.
    async fn explain_waiting(&mut self) {
        let is_new = |group: &&Waiting<'_>| {
            let told = |pod: &&Pod| self.explained.contains(&(pod.uid.clone(), group.message.to_owned()));
            !group.pods.iter().all(told)
        };
        let waiting = self.world.waiting();
        let groups: Vec<&Waiting<'_>> = waiting.iter().filter(is_new).collect();
        let mut told = String::new();
        for group in groups.iter().take(EXPLAINED_MAX) {
            told.push_str(&explain(group, self.scheduler.as_ref()).await);
        }
        let more = groups.len().saturating_sub(EXPLAINED_MAX);
        if more > 0 {
            told.push_str(&format!("            {more} other reasons are left out here\n"));
        }
        for group in &groups {
            let said = group.pods.iter().map(|pod| (pod.uid.clone(), group.message.to_owned()));
            self.explained.extend(said);
        }
        if !told.is_empty() {
            self.voice.say(&told);
        }
    }

    async fn make_namespaces(&mut self, part: &Part) -> Result<()> {
        for namespace in &part.namespaces {
            let is_made =
                self.undo.iter().any(|undo| matches!(undo, Undo::Namespace(known) if known == namespace));
            if !is_made {
                self.undo.push(Undo::Namespace(namespace.clone()));
                self.live.make_namespace(namespace).await.context("cannot begin")?;
            }
        }
        Ok(())
    }
}

/// Why the first of some pods waits, which is why they all do.
async fn explain(group: &Waiting<'_>, scheduler: Option<&Scheduler>) -> String {
    let Some(first) = group.pods.first() else { return String::new() };
    let others = match group.pods.len() - 1 {
        0 => String::new(),
        others => format!(" (and {others} more like it)"),
    };
    let explained = match scheduler {
        Some(scheduler) => scheduler.pod(&first.namespace, &first.name, Format::Text).await.ok(),
        None => None,
    };
    let text = match (explained, group.message) {
        (Some(text), _) => indented(&text),
        (None, "") => "no scheduler has looked at it yet; does one run that serves its schedulerName?".into(),
        (None, message) => message.to_owned(),
    };
    format!("    why     {}{others} waits:\n{}\n", first.key(), text::wrap(&text, 12, EXPLANATION_WIDTH))
}

/// Each line begins with a blank, so that it stays as it is.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!(" {line}\n")).collect()
}

fn count_nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}
