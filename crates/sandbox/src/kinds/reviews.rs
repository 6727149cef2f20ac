//! Questions about the asker: authorization and authentication reviews. Never stored.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    let mut access =
        Kind::builtin("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews");
    let mut identity = Kind::builtin("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews");
    for kind in [&mut access, &mut identity] {
        kind.namespaced = false;
        kind.verbs = &["create"];
    }
    vec![access, identity]
}
