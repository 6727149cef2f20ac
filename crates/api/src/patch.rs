//! Patches of JSON trees: JSON patch, merge, strategic merge, and the patch that leads from one tree to another.
//!
//! Pure functions from one tree to another, with the API server's leniencies and words.

pub mod diff;
pub mod json;
pub mod merge;
pub mod strategic;

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
