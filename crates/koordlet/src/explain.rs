//! What people may ask of a running koordlet: how much CPU best-effort pods may use right now, and why.
//!
//! `koord explain node NAME --koordlet URL` prints it below what the manager says of the node.

use http::{Method, Request, StatusCode, header};
use koord_kit::http::{Answer, is_local, json, text};
use serde_json::{Value, json};

use crate::act::Today;
use crate::decide::cpu_suppress::{Budget, Verdict};

/// Everything below this path is answered here.
pub const ROOT: &str = "/apis/v1/explain/node/";

/// Answers for one node. Cheap to clone.
#[derive(Clone)]
pub struct Explainer {
    pub node: String,
    pub today: Today,
}

impl Explainer {
    /// Only to clients on the same machine, which `kubectl port-forward` is.
    pub fn answer<B>(&self, request: &Request<B>) -> Answer {
        let path = request.uri().path();
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} is read with GET\n"));
        }
        let refuse = |status, message: String| json(status, &json!({ "message": message }));
        if !is_local(request) {
            let message = "this page is for clients on the same machine; kubectl port-forward makes you one";
            return refuse(StatusCode::FORBIDDEN, message.to_owned());
        }
        let asked = path.strip_prefix(ROOT).unwrap_or_default();
        if asked != self.node {
            let message = format!("this koordlet is of node {}, not of {asked}", self.node);
            return refuse(StatusCode::NOT_FOUND, message);
        }
        let verdict = self.today.verdict();
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        match accept.is_some_and(|accept| accept.starts_with("text/plain")) {
            true => text(StatusCode::OK, words(verdict.as_ref())),
            false => json(StatusCode::OK, &data(&self.node, verdict.as_ref())),
        }
    }
}

/// The budget as people read it, one term on each line.
fn words(verdict: Option<&Verdict>) -> String {
    let (budget, end) = match verdict {
        None => return "Best-effort CPU now: not worked out yet\n".to_owned(),
        Some(Verdict::Off) => {
            return "Best-effort CPU now: not limited, the NodeSLO has it switched off\n".to_owned();
        }
        Some(Verdict::Managed) => {
            return "Best-effort CPU now: shared pools, by gate BECPUManager\n".to_owned();
        }
        Some(Verdict::Skipped(reason)) => return format!("Best-effort CPU now: left as it was, {reason}\n"),
        Some(Verdict::ByCpuset { budget, choice: Ok(choice) }) => {
            let end = format!(
                "  gives CPUs {} ({} before, {} more at once)",
                choice.cpus, choice.before, choice.step
            );
            (budget, end)
        }
        Some(Verdict::ByCpuset { budget, choice: Err(reason) }) => {
            (budget, format!("  gives no CPU: {reason}"))
        }
        Some(Verdict::ByQuota { budget, choice }) => {
            let end = match choice.quota {
                Some(quota) => format!("  gives a quota of {quota} us ({} before)", choice.before),
                None => format!("  leaves the quota of {} us, {} is too near", choice.before, choice.wanted),
            };
            (budget, end)
        }
    };
    let Budget { capacity_milli, threshold_percent, ls_used_milli, host_ls_used_milli, system_milli, .. } =
        *budget;
    let mut out = format!("Best-effort CPU now: {}m\n", budget.suppress_milli);
    out.push_str(&format!("  {threshold_percent} % of {capacity_milli}m\n"));
    out.push_str(&format!("  less {ls_used_milli}m that other pods use\n"));
    out.push_str(&format!("  less {host_ls_used_milli}m that host applications use\n"));
    out.push_str(&format!("  less {system_milli}m of the system ({}m reserved)\n", budget.reserved_milli));
    if let Some(percent) = budget.min_percent {
        out.push_str(&format!("  but at least {percent} % of the node\n"));
    }
    out.push_str(&end);
    out.push('\n');
    out
}

fn data(node: &str, verdict: Option<&Verdict>) -> Value {
    let (state, budget, result) = match verdict {
        None => ("unknown", None, Value::Null),
        Some(Verdict::Off) => ("off", None, Value::Null),
        Some(Verdict::Managed) => ("managed", None, Value::Null),
        Some(Verdict::Skipped(reason)) => ("skipped", None, json!({ "reason": reason.to_string() })),
        Some(Verdict::ByCpuset { budget, choice }) => {
            let result = match choice {
                Ok(choice) => json!({ "cpus": choice.cpus.to_string(), "cpusBefore": choice.before }),
                Err(reason) => json!({ "reason": reason.to_string() }),
            };
            ("cpuset", Some(budget), result)
        }
        Some(Verdict::ByQuota { budget, choice }) => {
            let result =
                json!({ "quota": choice.quota, "quotaBefore": choice.before, "quotaWanted": choice.wanted });
            ("cfsQuota", Some(budget), result)
        }
    };
    let budget = budget.map(|budget| {
        json!({
            "capacityMilli": budget.capacity_milli,
            "thresholdPercent": budget.threshold_percent,
            "minPercent": budget.min_percent,
            "lsUsedMilli": budget.ls_used_milli,
            "beUsedMilli": budget.be_used_milli,
            "hostLsUsedMilli": budget.host_ls_used_milli,
            "systemMilli": budget.system_milli,
            "reservedMilli": budget.reserved_milli,
            "suppressMilli": budget.suppress_milli,
        })
    });
    json!({ "node": node, "suppression": state, "budget": budget, "result": result })
}

#[cfg(test)]
mod tests {
    use koord_api::cpuset::CpuSet;

    use super::*;
    use crate::decide::cpu_suppress::{Skip, cpuset, quota};

    fn budget() -> Budget {
        Budget {
            capacity_milli: 20_000,
            threshold_percent: 65,
            min_percent: None,
            ls_used_milli: 5000,
            be_used_milli: 1000,
            host_ls_used_milli: 0,
            system_milli: 2000,
            reserved_milli: 1500,
            suppress_milli: 6000,
        }
    }

    #[test]
    fn a_budget_in_words() {
        let choice =
            cpuset::Choice { cpus: CpuSet::range(0..=5), wanted: 6, before: 8, step: 2, shared_with_lsr: 0 };
        let verdict = Verdict::ByCpuset { budget: budget(), choice: Ok(choice) };
        let want = "Best-effort CPU now: 6000m\n  65 % of 20000m\n  less 5000m that other pods use\n  \
                    less 0m that host applications use\n  less 2000m of the system (1500m reserved)\n  \
                    gives CPUs 0-5 (8 before, 2 more at once)\n";
        assert_eq!(words(Some(&verdict)), want);
        let data = data("n1", Some(&verdict));
        assert_eq!((&data["suppression"], &data["result"]["cpus"]), (&json!("cpuset"), &json!("0-5")));
        assert_eq!(data["budget"]["suppressMilli"], 6000);
    }

    #[test]
    fn other_verdicts() {
        let quota =
            quota::Choice { quota: None, wanted: 600_500, before: 600_000, dead_band: 20_000, step: 200_000 };
        for (verdict, part) in [
            (None, "not worked out yet"),
            (Some(Verdict::Off), "switched off"),
            (Some(Verdict::Skipped(Skip::NoPods)), "the node has no pods"),
            (Some(Verdict::ByQuota { budget: budget(), choice: quota }), "leaves the quota of 600000 us"),
        ] {
            assert!(words(verdict.as_ref()).contains(part), "{part}: {}", words(verdict.as_ref()));
        }
    }

    #[test]
    fn strangers_and_other_nodes() {
        let explainer = Explainer { node: "n1".into(), today: Today::default() };
        let ask = |path: &str, from: &str| {
            let mut request = Request::get(path).body(()).unwrap();
            request.extensions_mut().insert(from.parse::<std::net::SocketAddr>().unwrap());
            explainer.answer(&request).status()
        };
        assert_eq!(ask("/apis/v1/explain/node/n1", "127.0.0.1:1"), StatusCode::OK);
        assert_eq!(ask("/apis/v1/explain/node/n2", "127.0.0.1:1"), StatusCode::NOT_FOUND);
        assert_eq!(ask("/apis/v1/explain/node/n1", "10.0.0.1:1"), StatusCode::FORBIDDEN);
    }
}
