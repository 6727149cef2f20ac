//! The manager's part of the chart, as far as a program without Helm can judge it. Spec: manager 25.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use koord_api::gate::{Component, Gates};
use koord_kit::http::Listen;
use koord_manager::flags::{self, Request};
use koord_manager::webhook::paths::{ENTRIES, Entry, Side, installed};
use koord_manager::webhook::settings::Settings;
use serde_json::{Value, json};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn values() -> Value {
    yaml("chart/values.yaml")
}

/// The value that a template names, such as `.Values.manager.replicas`.
fn value(name: &str) -> String {
    let name = name.replace("$namespace", ".Values.installation.namespace");
    let name = name.replace("$manager.", ".Values.manager.");
    let path = name.strip_prefix(".Values.").unwrap_or_else(|| panic!("{name} is no value"));
    let values = values();
    let found = path.split('.').try_fold(&values, |below, part| below.get(part));
    match found.unwrap_or_else(|| panic!("values.yaml lacks {path}")) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A line with its values in place.
fn filled(line: &str) -> String {
    match line.split_once("{{ ").and_then(|(before, rest)| Some((before, rest.split_once(" }}")?))) {
        Some((before, (name, rest))) => filled(&format!("{before}{}{rest}", value(name))),
        None => line.to_owned(),
    }
}

#[test]
fn kinds_and_their_data_outlive_the_release() {
    let template = read("chart/templates/crds.yaml");
    let lines: Vec<&str> = template.lines().map(str::trim).collect();
    let at =
        |wanted: &str| lines.iter().position(|line| *line == wanted).unwrap_or_else(|| panic!("{wanted}"));
    let mark =
        r#"(merge (dict "helm.sh/resource-policy" "keep") ($crd.metadata.annotations | default dict))"#;
    let kept = at(&format!("{{{{- $_ := set $crd.metadata \"annotations\" {mark} }}}}"));
    let shown = at("{{ toYaml $crd }}");
    assert!(kept < shown, "manager#26.DB-17: what is installed is marked as kept");
    assert!(at(r#"{{- range $path, $bytes := .Files.Glob "files/crds/*.yaml" }}"#) < kept, "every one");
    assert_eq!(template.matches("toYaml").count(), 1, "and nothing is installed past the mark");
    // Each can be left out by its own value.
    let mut plurals = BTreeSet::from(["managed".to_owned()]);
    for file in std::fs::read_dir(deploy().join("chart/files/crds")).unwrap() {
        let crd: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        plurals.insert(crd["spec"]["names"]["plural"].as_str().unwrap().to_owned());
    }
    let values = values();
    let keys: BTreeSet<String> = values["crds"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, plurals);
    assert!(values["crds"].as_object().unwrap().values().all(|value| *value == json!(true)));
}

#[test]
fn nothing_is_kept_twice() {
    for source in ["crds", "manager", "koordlet"] {
        let real = |path: &str| deploy().join(path).canonicalize().unwrap();
        assert_eq!(real(&format!("chart/files/{source}")), real(source));
    }
    let template = read("chart/templates/rbac.yaml");
    assert!(template.contains(r#"list "manager" "koordlet""#));
    for component in ["manager", "koordlet"] {
        let granted = read(&format!("{component}/rbac.yaml"));
        let places = granted.matches("koordinator-system").count();
        let replaced = granted.matches("namespace: koordinator-system").count();
        assert_eq!(replaced, places, "all of them are replaced");
        for document in granted.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            assert!(object["kind"].is_string(), "a document for each separator");
        }
    }
}

#[test]
fn the_webhooks_are_those_that_are_served() {
    let settings = Settings::new(|_| None).unwrap();
    let wanted = Side::ALL.map(|side| {
        installed(side, settings.configuration_name(side), &settings.namespace, &settings.service_name)
    });
    let found: Vec<Value> = serde_saphyr::from_multiple(&read("manager/webhooks.yaml")).unwrap();
    let text = wanted.each_ref().map(|object| serde_saphyr::to_string(object).unwrap()).join("---\n");
    assert!(found == wanted, "deploy/manager/webhooks.yaml should be\n{text}");

    let template = read("chart/templates/koord-manager-webhooks.yaml");
    let policies = &values()["webhookConfiguration"]["failurePolicy"];
    for entry in &ENTRIES {
        let line = format!("  \"{}\" {}", entry.name, off_when(entry));
        assert!(template.lines().any(|found| found == line), "{line}");
        let key = match entry.resource {
            "pods/binding" => "pods",
            "nodes/status" => "nodeStatus",
            other => other,
        };
        let installed = entry.wire("", "")["failurePolicy"].clone();
        let chosen = policies.get(key).cloned().unwrap_or_else(|| installed.clone());
        assert_eq!(chosen, installed, "{}", entry.name);
    }
}

/// When the chart leaves an entry out, in its own language.
fn off_when(entry: &Entry) -> String {
    let defaults = Gates::defaults(Component::Manager);
    let off = |gate: &&str| match defaults.is_on(gate) {
        true => format!("(contains \"{gate}=false\" $gates)"),
        false => format!("(not (or $all (contains \"{gate}=true\" $gates)))"),
    };
    let all: Vec<String> = entry.gates.iter().map(off).collect();
    if let [one] = all.as_slice() { one.clone() } else { format!("(or {})", all.join(" ")) }
}

#[test]
fn the_manager_takes_the_flags_it_is_given() {
    let template = read("chart/templates/koord-manager.yaml");
    let arguments = template.split_once("        args:\n").unwrap().1.split_once("        env:\n").unwrap().0;
    let words: Vec<String> =
        arguments.lines().map(|line| filled(line).trim_start().trim_start_matches("- ").to_owned()).collect();
    let Request::Run(options) = flags::parse(words.clone(), |_| None).unwrap() else { panic!("{words:?}") };
    assert_eq!(options.warnings, Vec::<String>::new(), "{words:?}");
    let ports = [8080, 8000].map(|port| Some(Listen::Everywhere { port }));
    assert_eq!([options.metrics, options.health], ports);
    assert_eq!(options.config_namespace, "koordinator-system");
    assert_eq!(options.election.unwrap().namespace.as_deref(), Some("koordinator-system"));
    let settings = Settings::new(|_| None).unwrap();
    assert_eq!(value("$manager.webhook.port"), settings.port.to_string());
    assert_eq!(value("$manager.webhook.certificates.secretName"), "", "certificates are self-made");
    let given = "        - name: WEBHOOK_CERT_WRITER\n          value: given\n";
    assert!(template.contains(given), "and can be given");
    for name in [&settings.service_name, &settings.secret_name] {
        assert!(template.contains(&format!("  name: {name}\n")), "{name}");
    }
    assert!(template.contains("    control-plane: koordinator\n"), "the namespace that entries leave alone");
}

/// What helm makes of it is looked at on a cluster, by `e2e/tests/chart.rs`.
#[test]
fn koordlet_takes_more_flags_than_the_chart_knows() {
    let template = read("chart/templates/koordlet.yaml");
    let arguments = template.split_once("        args:\n").unwrap().1.split_once("        env:\n").unwrap().0;
    for part in [
        "        {{- with $koordlet.kubeletCaFile }}\n        - {{ printf \"--kubelet-ca-file=%s\" . | quote }}\n        {{- end }}\n",
        "        {{- range $koordlet.extraArgs }}\n        - {{ . | quote }}\n        {{- end }}\n",
    ] {
        assert!(arguments.contains(part), "{part} in {arguments}");
    }
    let values = &values()["koordlet"];
    assert_eq!(values["kubeletCaFile"], json!(""), "as Koordinator, which verifies no kubelet");
    assert_eq!(values["extraArgs"], json!([]));
    assert!(template.contains("- {name: host-kubernetes, mountPath: /etc/kubernetes/, readOnly: true}\n"));
}

#[test]
fn versions_agree() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = yaml("chart/Chart.yaml");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    for image in ["$manager.image", ".Values.koordlet.image", ".Values.deviceDaemon.image"] {
        assert_eq!(value(&format!("{image}.tag")), format!("v{version}"));
    }
}

#[test]
fn strategies_and_priorities_are_those_that_are_known() {
    let config: Value =
        serde_saphyr::from_str(&filled_all("chart/templates/slo-controller-config.yaml")).unwrap();
    let data: std::collections::BTreeMap<String, String> =
        serde_json::from_value(config["data"].clone()).unwrap();
    let mut slo = koord_api::slo::SloConfig::default();
    let loaded = slo.load(Some(&data));
    assert!(loaded.events.is_empty(), "{:?}", loaded.events);
    for key in data.keys() {
        assert!(loaded.changed.contains(key), "{key} means nothing: {:?}", loaded.changed);
    }
    let label = koord_api::keys::config_map::label::TYPE;
    assert_eq!(config["metadata"]["labels"][label], "slo-controller-config");
    let classes = read("chart/templates/priority-classes.yaml");
    for class in ["\"koord-prod\" 9000", "\"koord-mid\" 7000", "\"koord-batch\" 5000", "\"koord-free\" 3000"]
    {
        assert!(classes.contains(class), "{class}");
    }
}

fn filled_all(path: &str) -> String {
    read(path).lines().map(|line| filled(line) + "\n").collect()
}
