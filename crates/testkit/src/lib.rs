//! A real Kubernetes control plane, started in seconds, for tests and benchmarks.
//!
//! ```no_run
//! let Some(cluster) = koord_testkit::shared() else { return Ok(()) }; // It said why.
//! println!("{}", cluster.kubectl_ok(["get", "namespaces"])?);
//! # Ok::<(), koord_testkit::Error>(())
//! ```
//!
//! etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl are built once from
//! the Go module proxy into a user cache ([`Binaries`]); a [`ControlPlane`] runs them on loopback
//! with its own certificates and leaves nothing behind, however the process that owns it ends.
//!
//! Environment: `KOORD_CACHE` (where the programs are kept), `KOORD_K8S_VERSION` (another
//! Kubernetes for all tests), `CI` (set: what would be skipped for lack of Go or network fails).

mod arguments;
mod binaries;
mod cache;
mod control_plane;
mod error;
mod go;
mod helm;
pub mod node_tree;
mod peer;
mod pki;
mod process;
mod shared;
mod version;
mod wait;
mod watchdog;

pub use binaries::{Binaries, Program};
pub use cache::cache_dir;
pub use control_plane::{Builder, ControlPlane};
pub use error::Error;
pub use helm::helm;
pub use peer::peer;
pub use process::free_port;
pub use shared::shared;
pub use version::{KUBERNETES_VERSION, Version};
pub use wait::wait_until;
