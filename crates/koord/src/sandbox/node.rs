//! `koord sandbox node`: nodes come, go, fail and are revived while the sandbox runs.

use anyhow::{Context, Result, bail};
use http::Method;
use serde_json::json;

use super::place::Place;
use super::up::NodeFlags;
use super::{number, remote, say};

#[derive(Debug, clap::Args)]
pub(super) struct NodeArgs {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, clap::Subcommand)]
enum NodeCommand {
    /// Add nodes, by the flags of `up`
    Add(NodeFlags),
    /// The nodes and how they are
    List,
    /// Keep new pods away
    Cordon(Names),
    /// Let new pods come again
    Uncordon(Names),
    /// Cut a node off: it reports nothing more, and its pods stand still
    Fail(Names),
    /// Bring a failed node back
    Revive(Names),
    /// Take nodes away
    Remove(Names),
}

#[derive(Debug, clap::Args)]
struct Names {
    /// Names of nodes or of whole pools
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
}

impl NodeArgs {
    pub(super) async fn run(self, place: &Place) -> Result<()> {
        match self.command {
            NodeCommand::Add(flags) => add(place, &flags).await,
            NodeCommand::List => list(place).await,
            NodeCommand::Cordon(names) => change(place, &names, "cordon", "cordoned").await,
            NodeCommand::Uncordon(names) => change(place, &names, "uncordon", "uncordoned").await,
            NodeCommand::Fail(names) => change(place, &names, "fail", "failed").await,
            NodeCommand::Revive(names) => change(place, &names, "revive", "revived").await,
            NodeCommand::Remove(names) => change(place, &names, "remove", "removed").await,
        }
    }
}

async fn add(place: &Place, flags: &NodeFlags) -> Result<()> {
    let wanted = flags.wanted()?;
    if wanted.is_nothing() {
        bail!("say what to add: --nodes, --node-shape or --node-pools");
    }
    let body = serde_json::to_vec(&wanted)?;
    let answer = remote::order(place, Method::POST, "nodes", body).await?;
    let names: Vec<&str> =
        answer["nodes"].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
    match names.as_slice() {
        [] => say("No node was added."),
        [one] => say(&format!("Added {one}.")),
        [first, .., last] => say(&format!("Added {} nodes, {first} to {last}.", names.len())),
    }
}

async fn list(place: &Place) -> Result<()> {
    let answer = remote::order(place, Method::GET, "nodes", Vec::new()).await?;
    let nodes = answer["nodes"].as_array().context("the sandbox's answer cannot be read")?;
    let name = |node: &serde_json::Value| node["name"].as_str().unwrap_or_default().to_owned();
    let width = nodes.iter().map(|node| name(node).len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:<width$}  {:<10}  PODS\n", "NODE", "STATE");
    for node in nodes {
        let state = node["state"].as_str().unwrap_or_default();
        text.push_str(&format!("{:<width$}  {state:<10}  {}\n", name(node), number(&node["pods"])));
    }
    say(&text)
}

async fn change(place: &Place, names: &Names, verb: &str, done: &str) -> Result<()> {
    let mut failed = 0;
    for name in &names.nodes {
        match remote::order(
            place,
            Method::POST,
            &format!("nodes/{name}/{verb}"),
            json!({}).to_string().into(),
        )
        .await
        {
            Ok(answer) => {
                for node in answer["nodes"].as_array().into_iter().flatten() {
                    say(&format!("{} {done}", node.as_str().unwrap_or_default()))?;
                }
            }
            Err(error) if names.nodes.len() == 1 => return Err(error),
            Err(error) => {
                failed += 1;
                say(&format!("{name}: {error:#}"))?;
            }
        }
    }
    if failed > 0 { bail!("{failed} of {} nodes could not be {done}", names.nodes.len()) } else { Ok(()) }
}
