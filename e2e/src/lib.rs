//! Whole-system tests; see `tests/`. What several of them, or xtask, use is here.

pub mod differential;
pub mod machine;
