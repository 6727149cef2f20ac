//! What the tests of several plugins share.

pub(crate) mod fixture;
