//! What the conditions of several kinds share.

use crate::crd::wire::open_enum;

open_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        True = "True",
        False = "False",
        Unknown = "Unknown",
    }
}
