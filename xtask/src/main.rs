//! Everything we automate.

fn main() {}
