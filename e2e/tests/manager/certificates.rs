//! Certificates of the webhook server: shared by all replicas, and replaced without anyone noticing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use koord_manager::webhook::certificates::{Artifacts, CA_CERT, CERT, KEY};
use koord_manager::webhook::paths::Side;
use serde_json::{Value, json};

use crate::place::{HOME, Place, SERVER_NAME, configuration, eventually};
use crate::replica::Replica;
use crate::stream::Stream;

const SECRET: &str = "/api/v1/namespaces/koordinator-system/secrets/koordinator-webhook-certs";

/// Replaced in every way there is, under a stream of admissions.
pub(crate) async fn none_fails_while_they_change(place: &Place, replicas: &[Replica; 2]) -> Result<()> {
    let first = shared(place, replicas, |_| true).await.context("one authority for all")?;
    let stream = Stream::start(place);
    stream.goes_on(10).await?;
    // Lost.
    place.delete(SECRET).await?;
    let second = changed(place, replicas, &stream, &first).await.context("a lost Secret")?;
    // Brought back from a backup: as good as any, and older than what is trusted now.
    let backup = made_days_ago(1)?;
    write(place, &backup).await?;
    let third = changed(place, replicas, &stream, &second).await.context("a Secret of yesterday")?;
    ensure!(third == backup.ca_cert, "what is good stays");
    // Near its end: a certificate of ten years with a hundred days left.
    write(place, &made_days_ago(3550)?).await?;
    let fourth = changed(place, replicas, &stream, &third).await.context("a Secret that ends soon")?;
    // Over.
    write(place, &made_days_ago(4000)?).await?;
    let fifth = changed(place, replicas, &stream, &fourth).await.context("a Secret that has ended")?;
    // Damaged: the authority stays.
    let before = secret(place).await?;
    place.patch(SECRET, &json!({"data": {KEY: STANDARD.encode("no key")}})).await?;
    let sixth =
        shared(place, replicas, |now| now.get(CERT) != before.get(CERT)).await.context("a new pair")?;
    ensure!(fifth == sixth, "the authority was replaced without need");
    stream.reconnect(place).await?;
    stream.goes_on(10).await?;
    let count = stream.end().await?;
    ensure!(count >= 60, "{count} admissions are no stream");
    Ok(())
}

/// One after the other stops, is replaced, and nobody notices.
pub(crate) async fn none_fails_while_replicas_are_replaced(
    place: &Place,
    replicas: [Replica; 2],
) -> Result<[Replica; 2]> {
    let stream = Stream::start(place);
    stream.goes_on(10).await?;
    let [first, second] = replicas;
    first.stop(place).await?;
    stream.goes_on(10).await?;
    let third = Replica::start(place, "third").await?;
    stream.reconnect(place).await?;
    second.stop(place).await?;
    stream.goes_on(10).await?;
    let fourth = Replica::start(place, "fourth").await?;
    stream.reconnect(place).await?;
    stream.goes_on(10).await?;
    stream.end().await?;
    Ok([third, fourth])
}

/// Those that somebody else makes are used as they are, and change without anyone noticing. There is no other replica.
pub(crate) async fn those_of_somebody_else_are_used(place: &Place) -> Result<()> {
    let dir = Replica::certificates_of(place, "given");
    std::fs::create_dir_all(&dir)?;
    // Ten days are left: our own would be renewed.
    let first = made_days_ago(3640)?;
    give(&dir, &first)?;
    let replica = Replica::start_with(place, "given", &[("WEBHOOK_CERT_WRITER", "given")]).await?;
    is_trusted(place, "the first authority is trusted", &first).await?;
    let stream = Stream::start(place);
    stream.goes_on(10).await?;
    let second = made_days_ago(1)?;
    give(&dir, &second)?;
    // The files are looked at in every round, and a changed configuration is a reason for one.
    let (collection, name) = configuration(Side::Validating);
    place.patch(&format!("{collection}/{name}"), &json!({"metadata": {"labels": {"look": "again"}}})).await?;
    eventually("the second pair is served", async || {
        let log = std::fs::read_to_string(place.dir.join("given.log"))?;
        Ok((log.matches("certificates of the webhook server taken over").count() == 2).then_some(()))
    })
    .await?;
    is_trusted(place, "the second authority is trusted", &second).await?;
    stream.reconnect(place).await?;
    stream.goes_on(10).await?;
    stream.end().await?;
    let mut files: Vec<_> = std::fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let names: Vec<_> = files.iter().map(std::fs::DirEntry::file_name).collect();
    ensure!(names == ["ca.crt", "tls.crt", "tls.key"], "{names:?}");
    replica.stop(place).await
}

fn give(dir: &Path, artifacts: &Artifacts) -> Result<()> {
    std::fs::write(dir.join("tls.key"), &artifacts.key)?;
    std::fs::write(dir.join("ca.crt"), &artifacts.ca_cert)?;
    Ok(std::fs::write(dir.join("tls.crt"), &artifacts.cert)?)
}

/// Whoever ended before may have had the last word on the configurations; it is not for long.
async fn is_trusted(place: &Place, what: &str, artifacts: &Artifacts) -> Result<()> {
    let is_so = async || Ok(trusted(place).await?.contains(artifacts.ca_cert.trim()).then_some(()));
    eventually(what, is_so).await
}

/// The authorities that the mutating webhooks trust.
async fn trusted(place: &Place) -> Result<String> {
    let (collection, name) = configuration(Side::Mutating);
    let found = place.get(&format!("{collection}/{name}")).await?;
    decoded(&found["webhooks"][0]["clientConfig"]["caBundle"])
}

/// Certificates as they would be if they had been made so many days ago.
fn made_days_ago(days: i64) -> Result<Artifacts> {
    let then = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * days))?;
    Ok(Artifacts::default().renew(SERVER_NAME, then, 7)?)
}

async fn write(place: &Place, artifacts: &Artifacts) -> Result<()> {
    let files = artifacts.files();
    let data: BTreeMap<&str, String> =
        files.iter().map(|(name, text)| (*name, STANDARD.encode(text))).collect();
    place.patch(SECRET, &json!({"data": data})).await.map(drop)
}

type Files = BTreeMap<String, String>;

async fn secret(place: &Place) -> Result<Files> {
    let found = place.find(SECRET).await?.unwrap_or_default();
    let data = found["data"].as_object().cloned().unwrap_or_default();
    data.into_iter().map(|(name, text)| Ok((name, decoded(&text)?))).collect()
}

fn decoded(text: &Value) -> Result<String> {
    Ok(String::from_utf8(STANDARD.decode(text.as_str().unwrap_or_default())?)?)
}

/// Waits until the Secret is as wanted, and everyone goes by it: both configurations trust its authority, and both
/// replicas serve its certificate. Gives the authority.
async fn shared(place: &Place, replicas: &[Replica; 2], is_it: impl Fn(&Files) -> bool) -> Result<String> {
    eventually("all go by the Secret", async || {
        let files = secret(place).await?;
        let (Some(authority), Some(certificate)) = (files.get(CA_CERT), files.get(CERT)) else {
            return Ok(None);
        };
        for side in Side::ALL {
            let (collection, name) = configuration(side);
            let found = place.get(&format!("{collection}/{name}")).await?;
            for entry in found["webhooks"].as_array().context("a list")? {
                if !decoded(&entry["clientConfig"]["caBundle"])?.contains(authority.trim()) {
                    return Ok(None);
                }
            }
        }
        let serves = |replica: &Replica| {
            std::fs::read_to_string(replica.certificates.join(CERT))
                .is_ok_and(|served| served == *certificate)
        };
        Ok((is_it(&files) && replicas.iter().all(serves)).then(|| authority.clone()))
    })
    .await
    .with_context(|| format!("Secret in {HOME}"))
}

/// Waits until all go by another authority than this one, and uses it.
async fn changed(place: &Place, replicas: &[Replica; 2], stream: &Stream, old: &str) -> Result<String> {
    let is_new = |files: &Files| files.get(CA_CERT).is_some_and(|authority| authority != old);
    let new = shared(place, replicas, is_new).await?;
    stream.reconnect(place).await?;
    stream.goes_on(10).await?;
    Ok(new)
}
