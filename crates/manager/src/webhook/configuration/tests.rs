use super::*;
use crate::webhook::certificates::Artifacts;
use crate::webhook::paths::installed;
use crate::webhook::settings::Writer;

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
    let wanted = Wanted {
        settings,
        is_served: &is_served,
        ca_cert: Some(ca_cert).filter(|text| !text.is_empty()),
        is_staggered: settings.writer == Writer::Given,
        since: now(),
        now: at,
    };
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
fn an_authority_that_somebody_else_tells_of() {
    let settings = settings(&[("WEBHOOK_CERT_WRITER", "given")]);
    let bundle =
        |configuration: &Value, at: usize| configuration["webhooks"][at]["clientConfig"]["caBundle"].clone();
    let first = kept(&fresh(), &["/mutate-pod"], "", now(), &settings).unwrap();
    assert_eq!(bundle(&first, 0), json!("Cg=="), "as it was installed");
    let mut injected = first.clone();
    injected["webhooks"][0]["clientConfig"]["caBundle"] = json!("dGhlaXJz");
    assert_eq!(kept(&injected, &["/mutate-pod"], "", now(), &settings), None, "theirs stays");
    let both = kept(&injected, &["/mutate-pod", "/off"], "", now(), &settings).unwrap();
    assert_eq!([bundle(&both, 0), bundle(&both, 1)], [json!("dGhlaXJz"), json!("dGhlaXJz")]);
    let mut bare = fresh();
    bare["webhooks"][0]["clientConfig"].as_object_mut().unwrap().remove("caBundle");
    let kept_bare = kept(&bare, &["/mutate-pod"], "", now(), &settings).unwrap();
    assert_eq!(bundle(&kept_bare, 0), json!(null), "none where there is none");
}

#[test]
fn replicas_that_are_given_another_authority_one_after_the_other() {
    let day = |days: i64| now().checked_add((days * 24).hours()).unwrap();
    let (old, new) = (authority(now()), authority(day(30)));
    let settings = settings(&[("WEBHOOK_CERT_WRITER", "given")]);
    let trusted = |configuration: &Value| {
        let text = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    };
    // The first replica has it; `since` of these is long ago, so what is older is dropped and what is younger stays.
    let first = kept(&fresh(), &["/mutate-pod"], &new, day(31), &settings).unwrap();
    assert_eq!(trusted(&first), new);
    let second = kept(&first, &["/mutate-pod"], &old, day(31), &settings).unwrap();
    assert_eq!(trusted(&second), format!("{old}{new}"), "the second does not take it away");
    let both = kept(&second, &["/mutate-pod"], &new, day(31), &settings).unwrap();
    assert_eq!(trusted(&both), new, "and in the end the old one goes");
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
    let wanted = Wanted {
        settings: &settings,
        is_served: &|_| true,
        ca_cert: Some(&ca),
        is_staggered: false,
        since: now(),
        now: now(),
    };
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

/// Kubelets write their nodes all the time; a cluster whose nodes are given up starts nothing, and no manager either.
#[test]
fn kubelets_are_never_kept_from_reporting() {
    let (ca, settings) = (authority(now()), settings(&[]));
    for (resources, policy) in [
        (json!(["nodes"]), json!("Fail")),
        (json!(["nodes/status"]), json!("Fail")),
        (json!(["nodes"]), json!(null)),
        (json!(["pods", "*/status"]), json!("Fail")),
        (json!(["*"]), json!("Fail")),
    ] {
        let mut webhook = entry("/mutate-pod");
        webhook["rules"] = json!([{"resources": resources}]);
        webhook["failurePolicy"] = policy;
        let mut configuration = fresh();
        configuration["webhooks"] = json!([webhook]);
        let first = kept(&configuration, &["/mutate-pod"], &ca, now(), &settings).unwrap();
        assert_eq!(first["webhooks"][0]["failurePolicy"], json!("Ignore"), "{resources}");
        assert_eq!(kept(&first, &["/mutate-pod"], &ca, now(), &settings), None, "{resources}");
    }
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
        let policy = policy.unwrap_or("Fail");
        assert_eq!(first["webhooks"][0]["failurePolicy"], json!(policy), "{name}: as it was chosen");
        assert_eq!(first["webhooks"][0]["rules"][0]["scope"], json!("*"), "{name}");
        assert_eq!(kept(&first, &["/mutate-pod"], &ca, now(), &settings), None, "{name}");
    }
}
