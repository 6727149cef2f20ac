//! What the sandbox's commands tell people.

use koord_sandbox::server::Restored;
use serde_json::Value;

use super::number;
use super::place::{Place, Running, quoted};

/// Counted things in one line: `3 ready, 1 failed`.
fn counts(value: &Value) -> String {
    let entries = value.as_object().into_iter().flatten();
    let parts: Vec<String> = entries.map(|(name, count)| format!("{} {name}", number(count))).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Real koordlets: each while that fits a line.
fn koordlets(running: &Running) -> String {
    const NAMED_MAX: usize = 3;
    let named = running.koordlets.iter().take(NAMED_MAX).map(|(node, url)| format!("{node} {url}"));
    let named: Vec<String> = named.collect();
    match running.koordlets.len() {
        0 => "none".to_owned(),
        count @ ..=NAMED_MAX => format!("{count}: {}", named.join(", ")),
        count => format!("{count}: {}, …", named.join(", ")),
    }
}

/// `koord sandbox status`.
pub(super) fn status(place: &Place, running: &Running, answer: &Value) -> String {
    let objects: u64 =
        answer["objects"].as_object().into_iter().flatten().map(|(_, count)| number(count)).sum();
    let kinds = answer["objects"].as_object().map_or(0, serde_json::Map::len);
    let rows = [
        ("server", running.server.clone()),
        ("kubernetes", answer["kubernetes"].as_str().unwrap_or_default().to_owned()),
        ("process", format!("{}, since {}", running.pid, answer["started"].as_str().unwrap_or_default())),
        ("folder", place.dir().display().to_string()),
        ("kubeconfig", running.kubeconfig.display().to_string()),
        ("scheduler", running.scheduler.clone().unwrap_or_else(|| "none".to_owned())),
        ("manager", running.manager.clone().unwrap_or_else(|| "none".to_owned())),
        ("admission", running.admission.clone().unwrap_or_else(|| "none".to_owned())),
        ("koordlets", koordlets(running)),
        ("nodes", counts(&answer["nodes"])),
        ("pods", counts(&answer["pods"])),
        ("objects", format!("{objects} of {kinds} kinds, revision {}", number(&answer["revision"]))),
    ];
    rows.iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect()
}

/// What a dump brought.
pub(super) fn restored(outcome: &Restored) -> String {
    let mut text = format!("{} objects restored, {} manifests applied.\n", outcome.restored, outcome.applied);
    if !outcome.namespaces.is_empty() {
        text.push_str(&format!("Namespaces made for them: {}.\n", outcome.namespaces.join(", ")));
    }
    for (kind, count) in &outcome.skipped {
        text.push_str(&format!("Left out, for the sandbox does not serve it: {kind}, {count} objects.\n"));
    }
    for refused in &outcome.refused {
        text.push_str(&format!("Refused: {refused}\n"));
    }
    text
}

/// What to type once a sandbox is up; `more` are commands of a demonstration.
pub(super) fn next_steps(place: &Place, running: &Running, is_foreground: bool, more: &[String]) -> String {
    let end = match is_foreground {
        true => format!("Ctrl-C ends it; so does `{}` from another terminal.", place.command("down")),
        false => format!("`{}` ends it.", place.command("down")),
    };
    let mut commands: Vec<String> = alias().into_iter().collect();
    commands.push(format!("export KUBECONFIG={}", quoted(&running.kubeconfig)));
    commands.push("kubectl get nodes".to_owned());
    commands.extend_from_slice(more);
    commands.extend(["status", "node fail node-0", "save cluster.json"].map(|words| place.command(words)));
    let commands: String = commands.iter().map(|command| format!("  {command}\n")).collect();
    format!("\nNext:\n{commands}\n{end}\n")
}

/// Commands are told as `koord …`; where no shell finds that, it is first given a meaning.
fn alias() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&path).any(|folder| folder.join("koord").is_file());
    let program = std::env::current_exe().ok().filter(|_| !is_found)?;
    Some(format!("alias koord={}", quoted(&program)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn status_fits_a_screen() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(Some(dir.path())).unwrap();
        let scheduler = Some("http://h:2".to_owned());
        let (server, kubeconfig) = ("https://h:1".into(), "/k".into());
        let koordlets = BTreeMap::from([("edge-0".to_owned(), "http://h:3".to_owned())]);
        let running =
            Running { pid: 7, server, kubeconfig, scheduler, manager: None, admission: None, koordlets };
        let answer = json!({"started": "then", "kubernetes": "v1.35.4", "revision": 9,
            "nodes": {"ready": 3, "failed": 1}, "pods": {}, "objects": {"nodes": 4, "leases.coordination.k8s.io": 4}});
        let text = status(&place, &running, &answer);
        assert!(text.contains("scheduler   http://h:2\nmanager     none\nadmission   none\n"), "{text}");
        assert!(text.contains("koordlets   1: edge-0 http://h:3\n"), "{text}");
        assert!(
            text.contains(
                "nodes       1 failed, 3 ready\npods        none\nobjects     8 of 2 kinds, revision 9\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn nothing_left_out_goes_unsaid() {
        let outcome = Restored {
            restored: 2,
            applied: 1,
            namespaces: vec!["a".into()],
            skipped: BTreeMap::from([("networking.k8s.io/v1 Ingress".to_owned(), 3)]),
            refused: vec!["Pod x: no".into()],
        };
        assert_eq!(
            restored(&outcome),
            "2 objects restored, 1 manifests applied.\nNamespaces made for them: a.\nLeft out, for the sandbox does not \
             serve it: networking.k8s.io/v1 Ingress, 3 objects.\nRefused: Pod x: no\n"
        );
    }
}
