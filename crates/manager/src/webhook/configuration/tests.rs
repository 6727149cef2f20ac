use super::*;
use crate::webhook::certificates::Artifacts;
use crate::webhook::paths::installed;

fn now() -> Timestamp {
    "2026-11-16T10:00:00Z".parse().unwrap()
}

fn settings(variables: &[(&str, &str)]) -> Settings {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
    Settings::new(|name| find(name).map(|(_, value)| (*value).to_owned())).unwrap()
}

fn authority(at: Timestamp) -> String {
    Artifacts::default().renew("x.svc", at, 1).unwrap().ca_cert
}

/// Keeps a configuration for a server that answers at these paths.
fn kept(
    configuration: &Value,
    served: &[&str],
    ca_cert: &str,
    at: Timestamp,
    settings: &Settings,
) -> Option<Value> {
    let is_served = |path: &str| served.contains(&path);
    let wanted = Wanted { settings, is_served: &is_served, ca_cert, since: now(), now: at };
    keep(Side::Mutating, configuration, &wanted).unwrap()
}

fn entry(path: &str) -> Value {
    json!({"name": format!("m{}", path.replace('/', ".")), "clientConfig": {"caBundle": "Cg==",
        "service": {"namespace": "x", "name": "webhook-service", "path": path}}, "failurePolicy": "Ignore",
        "future": true})
}

fn fresh() -> Value {
    json!({"metadata": {"name": "m", "annotations": {"template": ""}}, "webhooks": [entry("/mutate-pod"), entry("/off")]})
}

fn paths(configuration: &Value) -> Vec<String> {
    configuration["webhooks"].as_array().unwrap().iter().filter_map(path).collect()
}

fn template(configuration: &Value) -> Value {
    serde_json::from_str(configuration["metadata"]["annotations"]["template"].as_str().unwrap()).unwrap()
}

#[test]
fn the_list_is_kept() {
    let (ca, settings) = (authority(now()), settings(&[]));
    let first = kept(&fresh(), &["/mutate-pod"], &ca, now(), &settings).unwrap();
    assert_eq!(paths(&first), ["/mutate-pod"], "manager#14.2.H1");
    let webhook = &first["webhooks"][0];
    assert_eq!(webhook["clientConfig"]["caBundle"], json!(STANDARD.encode(&ca)), "manager#14.2.H1");
    let service = json!({"namespace": "koordinator-system", "name": "koordinator-webhook-service",
        "path": "/mutate-pod", "port": 443});
    assert_eq!(webhook["clientConfig"]["service"], service, "manager#14.2.H1");
    assert_eq!(webhook["future"], json!(true), "fields we do not know stay");
    assert_eq!(template(&first), json!([entry("/mutate-pod"), entry("/off")]), "manager#14.2.H1");

    assert_eq!(kept(&first, &["/mutate-pod"], &ca, now(), &settings), None, "manager#14.2.H2");

    let both = kept(&first, &["/mutate-pod", "/off"], &ca, now(), &settings).unwrap();
    assert_eq!(paths(&both), ["/mutate-pod", "/off"], "manager#14.2.H5");

    let moved = Settings { service_name: "other".into(), ..settings.clone() };
    let other = kept(&first, &["/mutate-pod"], &ca, now(), &moved).unwrap();
    assert_eq!(other["webhooks"][0]["clientConfig"]["service"]["name"], json!("other"), "manager#14.2.H4");
}

#[test]
fn nothing_to_keep_stays_nothing() {
    let (ca, settings) = (authority(now()), settings(&[]));
    let empty = json!({"metadata": {"name": "m"}, "webhooks": []});
    let first = kept(&empty, &["/mutate-pod"], &ca, now(), &settings).unwrap();
    assert_eq!((&first["webhooks"], template(&first)), (&json!([]), json!([])), "nobody wants to be called");
    assert_eq!(kept(&first, &["/mutate-pod"], &ca, now(), &settings), None);
    let null = json!({"metadata": {"name": "m", "annotations": {"template": "null"}}});
    assert_eq!(kept(&null, &["/mutate-pod"], &ca, now(), &settings), None);
}

#[test]
fn a_template_that_is_broken_or_emptied() {
    let (ca, settings) = (authority(now()), settings(&[]));
    let mut broken = fresh();
    broken["metadata"]["annotations"]["template"] = json!("oops");
    let wanted = Wanted { settings: &settings, is_served: &|_| true, ca_cert: &ca, since: now(), now: now() };
    let error = keep(Side::Mutating, &broken, &wanted).unwrap_err().to_string();
    let want =
        "annotation template of MutatingWebhookConfiguration koordinator-mutating-webhook-configuration is";
    assert!(error.starts_with(want), "manager#14.2.H7: {error}");

    let name = "koordinator-mutating-webhook-configuration";
    let installed = installed(Side::Mutating, name, "ns", "svc");
    let mut emptied = kept(&installed, &["/mutate-pod"], &ca, now(), &settings).unwrap();
    assert_eq!(paths(&emptied), ["/mutate-pod", "/mutate-pod"]);
    emptied["metadata"]["annotations"]["template"] = json!("");
    let restored = kept(&emptied, &["/mutate-pod"], &ca, now(), &settings).unwrap();
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names(&template(&restored)),
        names(&installed["webhooks"]),
        "manager#14.2.H8, manager#26.DB-36"
    );
    let on = kept(&restored, &["/mutate-pod", "/mutate-reservation"], &ca, now(), &settings).unwrap();
    assert_eq!(paths(&on), ["/mutate-pod", "/mutate-pod", "/mutate-reservation"], "manager#26.DB-36");
}

#[test]
fn called_by_address() {
    let ca = authority(now());
    let by_host = settings(&[("WEBHOOK_HOST", "10.0.0.5")]);
    let first = kept(&fresh(), &["/mutate-pod"], &ca, now(), &by_host).unwrap();
    let client = &first["webhooks"][0]["clientConfig"];
    assert_eq!(client["url"], json!("https://10.0.0.5:9876/mutate-pod"), "manager#14.2.H10");
    assert_eq!(client.get("service"), None, "manager#14.2.H10");
    assert_eq!(kept(&first, &["/mutate-pod"], &ca, now(), &by_host), None);
    // And back: the template still has the Service.
    let back = kept(&first, &["/mutate-pod"], &ca, now(), &settings(&[])).unwrap();
    let client = &back["webhooks"][0]["clientConfig"];
    assert_eq!((client.get("url"), &client["service"]["path"]), (None, &json!("/mutate-pod")));
    // An entry that was installed with a URL is known by its path.
    let mut by_url = fresh();
    by_url["webhooks"] = json!([{"name": "m", "clientConfig": {"url": "https://h:1/mutate-pod"}}]);
    let first = kept(&by_url, &["/mutate-pod"], &ca, now(), &settings(&[])).unwrap();
    assert_eq!(first["webhooks"][0]["clientConfig"]["service"]["path"], json!("/mutate-pod"));
}

#[test]
fn authorities_overlap() {
    let settings = settings(&[]);
    let old = authority("2026-01-01T00:00:00Z".parse().unwrap());
    let new = authority(now());
    let first = kept(&fresh(), &["/mutate-pod"], &old, now(), &settings).unwrap();
    let bundle = |configuration: &Value| {
        let text = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    };
    let second = kept(&first, &["/mutate-pod"], &new, now(), &settings).unwrap();
    assert_eq!(
        bundle(&second),
        format!("{new}{old}"),
        "manager#14.2.H6: the new one first, both are trusted"
    );
    assert_eq!(kept(&second, &["/mutate-pod"], &new, now(), &settings), None, "and stay so");
    let later = "2026-11-16T11:00:00Z".parse().unwrap();
    let third = kept(&second, &["/mutate-pod"], &new, later, &settings).unwrap();
    assert_eq!(bundle(&third), new, "manager#14.2.H6: the old one goes");
    assert_eq!(kept(&third, &["/mutate-pod"], &new, later, &settings), None);
    let back = kept(&third, &["/mutate-pod"], &old, now(), &settings).unwrap();
    assert_eq!(bundle(&back), format!("{old}{new}"), "one from a backup is new in use, however old it is");
}

#[test]
fn the_cluster_starts_while_nobody_answers() {
    let (ca, settings) = (authority(now()), settings(&[]));
    let spared =
        json!({"key": NAMESPACE_NAME, "operator": "NotIn", "values": ["kube-system", "koordinator-system"]});
    let control_plane = json!({"key": "control-plane", "operator": "DoesNotExist"});
    let selector = json!({"matchExpressions": [control_plane]});
    let none = json!({});
    for (name, policy, resources, selector, want) in [
        ("pods that fail", Some("Fail"), json!(["pods"]), &selector, json!([control_plane, spared])),
        ("failing is the default", None, json!(["pods"]), &none, json!([spared])),
        ("bindings", Some("Fail"), json!(["pods/binding"]), &none, json!([spared])),
        ("everything", Some("Fail"), json!(["*"]), &none, json!([spared])),
        ("pods that are let through", Some("Ignore"), json!(["pods"]), &selector, json!([control_plane])),
        ("our configuration lies in our namespace", Some("Fail"), json!(["configmaps"]), &none, json!(null)),
    ] {
        let mut webhook = entry("/mutate-pod");
        webhook["rules"] = json!([{"resources": resources}]);
        webhook["namespaceSelector"] = selector.clone();
        match policy {
            Some(policy) => webhook["failurePolicy"] = json!(policy),
            None => drop(webhook.as_object_mut().unwrap().remove("failurePolicy")),
        }
        let mut configuration = fresh();
        configuration["webhooks"] = json!([webhook]);
        let first = kept(&configuration, &["/mutate-pod"], &ca, now(), &settings).unwrap();
        assert_eq!(first["webhooks"][0]["namespaceSelector"]["matchExpressions"], want, "{name}");
        assert_eq!(first["webhooks"][0]["rules"][0]["scope"], json!("*"), "{name}");
        assert_eq!(kept(&first, &["/mutate-pod"], &ca, now(), &settings), None, "{name}");
    }
}
