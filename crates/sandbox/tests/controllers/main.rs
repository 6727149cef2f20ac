//! The controllers on an API without HTTP, with a tiny kubelet: what users of kubectl would see.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod lifecycle;
mod support;
mod workloads;
