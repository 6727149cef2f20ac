//! What the API server stores and what it refuses, case by case from tests/data.

use anyhow::{Context, Result, anyhow};
use koord_api::preserve::carry_unknown;
use kube::Client;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cluster::{Answer, client, create, replace, with_crds};
use crate::kinds::{Kind, kind};

/// The pattern of quantities. Spec: crds 0.
const QUANTITY: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    key: String,
    kind: String,
    fields: Map<String, Value>,
    stored: Option<Value>,
    #[serde(default)]
    refused: Vec<String>,
}

#[tokio::test]
async fn cases() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("../data/crd-cases.yaml"))?;
    for (index, case) in cases.into_iter().enumerate() {
        let answer = send(&client, kind(&case.kind)?, &format!("case-{index}"), case.fields).await?;
        let want = match case.stored {
            Some(stored) => Ok(stored),
            None => Err(case.refused.iter().map(|fault| fault.replace("QUANTITY", QUANTITY)).collect()),
        };
        assert_eq!(answer.map(|object| fields_of(&object)), want, "{}", case.key);
    }
    Ok(())
}

/// Creates the object; a status is written after that, for a create drops it.
async fn send(client: &Client, kind: Kind, name: &str, mut fields: Map<String, Value>) -> Result<Answer> {
    let Some(status) = fields.remove("status") else {
        return create(client, kind, &kind.object(name, fields)).await;
    };
    let created = create(client, kind, &kind.object(name, fields)).await?;
    let mut object = created.map_err(|faults| anyhow!("{name}: {faults:?}"))?;
    object["status"] = status;
    replace(client, kind, "/status", &object).await
}

fn fields_of(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, _)| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    kind: String,
    fields: Map<String, Value>,
}

/// Our types read what is stored and write it back; the server holds the same as before.
#[tokio::test]
async fn what_is_stored_survives_our_types() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let samples: Vec<Sample> = serde_saphyr::from_str(include_str!("../data/crd-objects.yaml"))?;
    for (index, sample) in samples.into_iter().enumerate() {
        let (kind, name) = (kind(&sample.kind)?, &sample.kind);
        let refused = |faults: Vec<String>| anyhow!("{name}: {faults:?}");
        let object = kind.object(&format!("sample-{index}"), sample.fields);
        let stored = create(&client, kind, &object).await?.map_err(refused)?;

        let view = (kind.through_type)(&stored).with_context(|| format!("reading {name}"))?;
        let carried = carry_unknown(&stored, &view, &view);
        let kept = replace(&client, kind, "", &carried).await?.map_err(refused)?;
        assert_eq!(fields_of(&kept), fields_of(&stored), "{name}");

        // The view alone is accepted too, and means the same.
        let from_view = replace(&client, kind, "", &view).await?.map_err(refused)?;
        assert_eq!(fields_of(&(kind.through_type)(&from_view)?), fields_of(&view), "{name}");
    }
    Ok(())
}
