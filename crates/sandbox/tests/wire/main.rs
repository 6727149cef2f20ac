//! The server as clients see it: real HTTPS, kube-rs on the other end.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod extensions;
mod groups;
mod lists;
mod misuse;
mod objects;
mod support;
