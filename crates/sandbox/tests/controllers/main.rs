//! The controllers on an API without HTTP, with a tiny kubelet: what users of kubectl would see.

mod lifecycle;
mod support;
mod workloads;
