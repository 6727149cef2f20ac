//! Taints and the tolerations that let a pod past them, as kube-scheduler matches the two.
//!
//! Pure. The comparing operators `Gt` and `Lt` are an alpha feature of Kubernetes 1.35 and off by
//! default there; as upstream with the feature off, a toleration that uses one matches no taint.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether the toleration covers the taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let matches_or_empty = |wanted: &Option<String>, found: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == found)
    };
    if !matches_or_empty(&toleration.effect, &taint.effect) || !matches_or_empty(&toleration.key, &taint.key)
    {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        "Exists" => true,
        _ => false,
    }
}

/// The first taint among those that `counts` admits which no toleration covers.
pub fn find_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    counts: impl Fn(&Taint) -> bool,
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| counts(taint))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint { key: key.into(), value: Some(value.into()), effect: effect.into(), time_added: None }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            toleration_seconds: None,
        }
    }

    #[test]
    fn one_taint_one_toleration() {
        let gpu = taint("gpu", "a100", "NoSchedule");
        for (name, toleration, want) in [
            ("equal", toleration("gpu", "Equal", "a100", "NoSchedule"), true),
            ("no operator means equal", toleration("gpu", "", "a100", "NoSchedule"), true),
            ("other value", toleration("gpu", "Equal", "h200", "NoSchedule"), false),
            ("other effect", toleration("gpu", "Equal", "a100", "NoExecute"), false),
            ("no effect means all", toleration("gpu", "Equal", "a100", ""), true),
            ("exists", toleration("gpu", "Exists", "", "NoSchedule"), true),
            ("exists, other key", toleration("cpu", "Exists", "", ""), false),
            ("exists without key means all", toleration("", "Exists", "", ""), true),
            ("exists without key, other effect", toleration("", "Exists", "", "NoExecute"), false),
            ("equal without key", toleration("", "", "a100", ""), true),
            ("comparing operators are off", toleration("gpu", "Gt", "1", ""), false),
            ("unknown operator", toleration("gpu", "exists", "", ""), false),
        ] {
            assert_eq!(tolerates(&toleration, &gpu), want, "{name}");
        }
        let bare = Taint { value: None, ..taint("gpu", "", "NoSchedule") };
        assert!(tolerates(&toleration("gpu", "", "", ""), &bare));
    }

    #[test]
    fn first_untolerated() {
        let taints = [
            taint("a", "1", "PreferNoSchedule"),
            taint("b", "1", "NoSchedule"),
            taint("c", "1", "NoExecute"),
        ];
        let hard = |taint: &Taint| taint.effect != "PreferNoSchedule";
        let key = |found: Option<&Taint>| found.map(|taint| taint.key.clone());
        assert_eq!(key(find_untolerated(&taints, &[], |_| true)).as_deref(), Some("a"));
        assert_eq!(key(find_untolerated(&taints, &[], hard)).as_deref(), Some("b"));
        let one = [toleration("b", "Exists", "", "")];
        assert_eq!(key(find_untolerated(&taints, &one, hard)).as_deref(), Some("c"));
        assert_eq!(find_untolerated(&taints, &[toleration("", "Exists", "", "")], hard), None);
    }
}
