//! Whole-system tests; see `tests/`.
