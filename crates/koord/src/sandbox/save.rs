//! `koord sandbox save`: every object of a cluster, as of one moment, in one file.
//!
//! Any cluster can be saved, a real Kubernetes too: all kinds are listed at the same resourceVersion.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use http::Request;
use kube::Client;
use kube::discovery::{Discovery, verbs};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Objects per request: large enough to be quick, small enough for any server.
const PAGE: usize = 500;

/// Groups whose objects are another group's seen differently, or are measured and not stored.
const DERIVED: &[&str] =
    &["events.k8s.io", "metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io"];

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) objects: usize,
    pub(super) kinds: usize,
    /// Kinds that could not be listed, and why.
    pub(super) failed: Vec<String>,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    token: String,
}

#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
}

/// One kind to list.
struct Resource {
    path: String,
    api_version: String,
    kind: String,
}

/// Writes a file that takes the place of `path` only when it is whole.
pub(super) async fn save(client: &Client, path: &Path, progress: &mut dyn FnMut(&str)) -> Result<Saved> {
    let mut name =
        path.file_name().with_context(|| format!("{} is not a file name", path.display()))?.to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let cannot = || format!("cannot write {}", part.display());
    // Secrets are in it.
    let _ = fs::remove_file(&part);
    let file =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&part).with_context(cannot)?;
    let mut out = BufWriter::new(file);
    let result = write_all(client, &mut out, progress).await;
    let result = result.and_then(|saved| {
        out.into_inner()
            .map_err(|error| anyhow!("{error}"))
            .and_then(|file: File| Ok(file.sync_all()?))
            .with_context(cannot)?;
        fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(saved)
    });
    if result.is_err() {
        let _ = fs::remove_file(&part);
    }
    result
}

async fn write_all(client: &Client, out: &mut impl Write, progress: &mut dyn FnMut(&str)) -> Result<Saved> {
    let resources = resources(client).await?;
    let first: Page = get(client, "/api/v1/namespaces?limit=1").await.context("cannot list namespaces")?;
    let moment = first.metadata.resource_version;
    let mut saved = Saved::default();
    out.write_all(b"{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[")?;
    for resource in resources {
        progress(&format!("{} {}", resource.api_version, resource.kind));
        match write_kind(client, &resource, &moment, saved.objects, out).await {
            Ok(0) => {}
            Ok(objects) => {
                saved.objects += objects;
                saved.kinds += 1;
            }
            // Nothing of it has been written: the first page is the one that fails.
            Err(error) if error.is::<Unlisted>() => {
                saved.failed.push(format!("{}: {error:#}", resource.kind))
            }
            Err(error) => return Err(error),
        }
    }
    out.write_all(b"\n]}\n")?;
    Ok(saved)
}

/// A kind that the server lists to nobody.
#[derive(Debug, thiserror::Error)]
#[error("cannot be listed: {0}")]
struct Unlisted(String);

async fn write_kind(
    client: &Client,
    resource: &Resource,
    moment: &str,
    before: usize,
    out: &mut impl Write,
) -> Result<usize> {
    let mut objects = 0;
    let mut query = format!("limit={PAGE}&resourceVersion={moment}&resourceVersionMatch=Exact");
    loop {
        let page: Page = match get(client, &format!("{}?{query}", resource.path)).await {
            Ok(page) => page,
            Err(error) if objects == 0 => return Err(Unlisted(format!("{error:#}")).into()),
            Err(error) => return Err(error.context(format!("{} {}", resource.api_version, resource.kind))),
        };
        for item in page.items.unwrap_or_default() {
            let separator = if before + objects == 0 { "\n" } else { ",\n" };
            out.write_all(separator.as_bytes())?;
            write_item(resource, item.get(), out)?;
            objects += 1;
        }
        if page.metadata.token.is_empty() {
            return Ok(objects);
        }
        query = format!("limit={PAGE}&continue={}", page.metadata.token);
    }
}

/// An item of a list does not say what it is; in the file it must.
fn write_item(resource: &Resource, item: &str, out: &mut impl Write) -> Result<()> {
    let head: Head = serde_json::from_str(item)?;
    let rest = item.strip_prefix('{').unwrap_or(item);
    match head.kind {
        Some(_) => out.write_all(item.as_bytes())?,
        None => {
            let Resource { api_version, kind, .. } = resource;
            let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
            write!(out, "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\"{comma}{rest}")?;
        }
    }
    Ok(())
}

/// Everything that can be listed, definitions and namespaces before the rest.
async fn resources(client: &Client) -> Result<Vec<Resource>> {
    let discovery =
        Discovery::new(client.clone()).exclude(DERIVED).run().await.context("cannot ask what there is")?;
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            if !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let root = if resource.group.is_empty() { "/api" } else { "/apis" };
            let path = format!("{root}/{}/{}", resource.api_version, resource.plural);
            found.push(Resource { path, api_version: resource.api_version, kind: resource.kind });
        }
    }
    let rank = |kind: &str| match kind {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    };
    found.sort_by(|a, b| (rank(&a.kind), &a.path).cmp(&(rank(&b.kind), &b.path)));
    Ok(found)
}

async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    let text = client.request_text(Request::get(path).body(Vec::new())?).await?;
    Ok(serde_json::from_str(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_say_what_they_are() {
        let resource = Resource { path: String::new(), api_version: "v1".into(), kind: "Pod".into() };
        for (item, want) in [
            (r#"{"metadata":{}}"#, r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#),
            (r#"{}"#, r#"{"apiVersion":"v1","kind":"Pod"}"#),
            (r#"{"kind":"Pod","apiVersion":"v1"}"#, r#"{"kind":"Pod","apiVersion":"v1"}"#),
        ] {
            let mut out = Vec::new();
            write_item(&resource, item, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
