//! The schemas arrive as generated, and the API server finds nothing to complain about.

use anyhow::Result;
use koord_api::crd::reservation::Reservation;
use koord_api::crd::{decode_object, generate};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::acceptance::kinds::reservations;
use crate::cluster::{client, create, with_crds};

#[test]
fn installed_as_generated() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let installed: Value = serde_json::from_str(&cluster.kubectl_ok(["get", "crds", "--output=json"])?)?;
    for manifest in generate::manifests() {
        let wanted = &manifest.content;
        let found = installed["items"].as_array().into_iter().flatten();
        let found =
            found.filter(|crd| crd["metadata"]["name"] == wanted["metadata"]["name"]).collect::<Vec<_>>();
        let [found] = found[..] else { panic!("{} is not installed", manifest.file_name) };
        for (wanted, found) in [
            (&wanted["spec"]["versions"], &found["spec"]["versions"]),
            (&wanted["spec"]["names"], &found["spec"]["names"]),
            (&wanted["spec"]["names"], &found["status"]["acceptedNames"]),
            (&json!({ "strategy": "None" }), &found["spec"]["conversion"]),
        ] {
            assert_eq!(wanted, found, "{}", manifest.file_name);
        }
        let conditions: Vec<(&Value, &Value)> = found["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|c| (&c["type"], &c["status"]))
            .collect();
        let is = |kind: &str| conditions.iter().any(|(t, status)| *t == kind && *status == "True");
        assert!(is("Established") && is("NamesAccepted"), "{}: {conditions:?}", manifest.file_name);
        assert!(!is("NonStructuralSchema"), "{}: {conditions:?}", manifest.file_name);
        let reviewed = wanted["metadata"].get("annotations").is_some();
        assert_eq!(
            is("KubernetesAPIApprovalPolicyConformant"),
            reviewed,
            "{}: {conditions:?}",
            manifest.file_name
        );
    }
    Ok(())
}

/// The types work with a typed client.
#[tokio::test]
async fn typed_client() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let reservations: Api<Reservation> = Api::all(client.clone());
    let wanted: Reservation = serde_json::from_value(json!({
        "metadata": { "name": "typed-client" },
        "spec": { "owners": [{ "object": { "namespace": "shop" } }], "ttl": "90s", "template": { "spec": { "containers": [] } } },
    }))?;
    let mut stored = reservations.create(&PostParams::default(), &wanted).await?;
    assert_eq!(stored.spec.as_ref().and_then(|spec| spec.allocate_once), Some(true));

    stored.set_available("n1", None, "2024-01-01T00:00:00Z".parse()?);
    let stored = reservations.replace_status("typed-client", &PostParams::default(), &stored).await?;
    assert!(stored.is_available());
    assert_eq!(reservations.get("typed-client").await?, stored);
    Ok(())
}

/// An object that the schema lets pass and no type can hold does not hide the others.
#[tokio::test]
async fn one_bad_object_is_named_and_the_others_are_read() -> Result<()> {
    let Some(cluster) = with_crds()? else { return Ok(()) };
    let client = client(cluster).await?;
    let kind = reservations();
    for (name, ttl) in [("bad-among-good", "abc"), ("good-among-bad", "90s")] {
        let spec = json!({ "ttl": ttl, "owners": [{ "object": {} }], "template": {} });
        let answer = create(&client, kind, &kind.object(name, &json!({ "spec": spec }))).await?;
        assert!(answer.is_ok(), "{answer:?}");
    }
    let list: Value = client.request(http::Request::get(kind.path()).body(Vec::new())?).await?;
    let items = list["items"].as_array().into_iter().flatten();
    let (good, bad): (Vec<_>, Vec<_>) = items.map(decode_object::<Reservation>).partition(Result::is_ok);
    let good: Vec<_> =
        good.into_iter().flatten().filter_map(|reservation| reservation.metadata.name).collect();
    let bad: Vec<_> = bad.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert!(good.contains(&"good-among-bad".to_owned()), "{good:?}");
    let fault = r#"Reservation bad-among-good: spec.ttl: time: invalid duration "abc", got "abc""#;
    assert!(bad.contains(&fault.to_owned()), "{bad:?}");
    Ok(())
}
