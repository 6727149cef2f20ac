//! The one binary: every role of Koord.

fn main() {}
