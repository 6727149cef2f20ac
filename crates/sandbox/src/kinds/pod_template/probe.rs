//! Probes and lifecycle hooks.

use serde_json::Value;

use super::super::check::{Faults, nonnegative, one_of, port_or_name, required};
use super::super::tree::{has, int, is_empty, list, part, text};
use super::super::{FieldError, Path, names};
use super::container::Context;

/// Lifecycle and probes of a container that may have them.
pub(super) fn check_all(
    context: &Context<'_>,
    container: &Value,
    grace: Option<i64>,
    path: &Path<'_>,
    out: &mut Faults,
) {
    if let Some(lifecycle) = part(container, "lifecycle") {
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(found) = part(lifecycle, hook) {
                handler(found, HOOK, grace, &path.child(hook), out);
            }
        }
        if has(lifecycle, "stopSignal") && part(context.spec, "os").is_none() {
            let detail = "may not be set for containers with empty `spec.os.name`";
            out.push(FieldError::forbidden(&path.child("stopSignal"), detail));
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = part(container, name) else { continue };
        let path = path.child(name);
        check(probe, grace, &path, out);
        let threshold = int(probe, "successThreshold").unwrap_or(0);
        let seconds = int(probe, "terminationGracePeriodSeconds");
        match (name, seconds) {
            ("readinessProbe", Some(seconds)) => {
                let detail = "must not be set for readinessProbes";
                out.push(FieldError::invalid(&path.child("terminationGracePeriodSeconds"), seconds, detail));
            }
            ("readinessProbe", None) => {}
            _ if threshold != 1 => {
                out.push(FieldError::invalid(&path.child("successThreshold"), threshold, "must be 1"));
            }
            _ => {}
        }
    }
}

const PROBE: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
const HOOK: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];

fn check(probe: &Value, grace: Option<i64>, path: &Path<'_>, out: &mut Faults) {
    handler(probe, PROBE, grace, path, out);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        nonnegative(int(probe, field).unwrap_or(0), &path.child(field), out);
    }
    if let Some(seconds) = int(probe, "terminationGracePeriodSeconds").filter(|s| *s <= 0) {
        let path = path.child("terminationGracePeriodSeconds");
        out.push(FieldError::invalid(&path, seconds, "must be greater than 0"));
    }
}

/// Exactly one way to act.
fn handler(handler: &Value, kinds: &[&str], grace: Option<i64>, path: &Path<'_>, out: &mut Faults) {
    let mut is_found = false;
    for kind in kinds {
        let Some(action) = part(handler, kind) else { continue };
        let path = path.child(kind);
        if is_found {
            out.push(FieldError::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        is_found = true;
        match *kind {
            "exec" if is_empty(action, "command") => {
                out.push(FieldError::required(&path.child("command"), ""));
            }
            "httpGet" => http_get(action, &path, out),
            "tcpSocket" | "grpc" => port_or_name(action.get("port"), &path.child("port"), out),
            "sleep" => {
                let seconds = int(action, "seconds").unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    out.push(FieldError::invalid(&path, seconds, detail));
                }
            }
            _ => {}
        }
    }
    if !is_found {
        out.push(FieldError::required(path, "must specify a handler type"));
    }
}

fn http_get(action: &Value, path: &Path<'_>, out: &mut Faults) {
    required(action, "path", path, out);
    port_or_name(action.get("port"), &path.child("port"), out);
    one_of(text(action, "scheme"), &["HTTP", "HTTPS"], &path.child("scheme"), out);
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let detail = names::regex_fault(
                "a valid HTTP header must consist of alphanumeric characters or '-'",
                "[-A-Za-z0-9]+",
                &["X-Header-Name"],
            );
            out.push(FieldError::invalid(&path.child("httpHeaders"), name, detail));
        }
    }
}
