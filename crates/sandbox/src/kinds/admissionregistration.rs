//! The admissionregistration.k8s.io group.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    let webhook = |kind, plural| {
        let mut kind = Kind::builtin("admissionregistration.k8s.io/v1", kind, plural)
            .cluster_scoped()
            .category("api-extensions")
            .generation();
        kind.unconditional_update = false;
        kind
    };
    vec![
        webhook("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        webhook("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ]
}
