//! The four ways to patch an object: JSON patch, merge, strategic merge, server-side apply.
//!
//! Pure functions from one tree to another. `json`, `merge` and `strategic` say what the object
//! becomes; `fieldset` and `managed` keep the record of who set which field; `apply` is built on
//! both.

pub mod apply;
pub mod fieldset;
pub mod json;
pub mod managed;
pub mod merge;
pub mod strategic;

mod typed;

/// Why a patch was not applied. Each variant is one answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// 400 BadRequest: not a patch of its kind.
    #[error("{0}")]
    Malformed(String),
    /// 413 RequestEntityTooLarge.
    #[error("{0}")]
    TooLarge(String),
    /// 422 with a general text: the patch does not fit this object. The reason is for our own logs.
    #[error("{0}")]
    DoesNotApply(String),
    /// 500: what the API server does not expect of a patch and answers as its own failure.
    #[error("{0}")]
    Unexpected(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    /// Any tree that is small enough to read when a case fails.
    pub(super) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-3_i64..4).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }
}
