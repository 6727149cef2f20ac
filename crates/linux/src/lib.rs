//! The kernel's files: the only crate that opens anything below the cgroup root.
//!
//! Readers hold files open and parse bytes without allocating; writes go through one executor that keeps the
//! kernel's rules at every moment. All paths hang on one [`root::Root`], so that a test gives a tree.
//! What a value should be is decided elsewhere. Spec: koordlet-observe 2, koordlet-enforce 2 and 3.

pub mod error;
pub mod root;

pub mod cgroup;
pub mod handle;
pub mod resource;

pub mod cpu_stat;
pub mod idle_pages;
pub mod memory_stat;
pub mod pressure;

pub mod block;
pub mod cpu_info;
pub mod kubelet;
pub mod process;
pub mod stat;
pub mod system;
pub mod topology;

pub mod core_sched;
pub mod perf;
pub mod resctrl;

pub mod nvml;
pub mod pci;
pub mod rdma;

pub mod executor;

mod text;
