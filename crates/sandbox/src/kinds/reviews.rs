//! Questions of who may do what: authorization and authentication reviews. Never stored.

use super::Kind;

pub(super) fn kinds() -> Vec<Kind> {
    let review = |api_version, kind, plural| {
        let mut kind = Kind::builtin(api_version, kind, plural);
        kind.verbs = &["create"];
        kind
    };
    let authorization = "authorization.k8s.io/v1";
    vec![
        review("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews").cluster_scoped(),
        review(authorization, "LocalSubjectAccessReview", "localsubjectaccessreviews"),
        review(authorization, "SelfSubjectAccessReview", "selfsubjectaccessreviews").cluster_scoped(),
        review(authorization, "SelfSubjectRulesReview", "selfsubjectrulesreviews").cluster_scoped(),
        review(authorization, "SubjectAccessReview", "subjectaccessreviews").cluster_scoped(),
    ]
}
