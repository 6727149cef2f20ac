//! Requests about the sandbox itself, under `/sandbox/`: beside Kubernetes, behind the same door.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::Method;
use serde_json::Value;

use crate::status::ApiError;

/// The path all of them begin with.
pub const PREFIX: &str = "/sandbox/";

/// The largest body: a dump of a cluster much larger than a sandbox can hold.
pub(super) const BODY_MAX_BYTES: usize = 4 << 30;

/// One such request.
#[derive(Clone, Debug)]
pub struct Order {
    pub method: Method,
    /// After the prefix, cut at its slashes and decoded.
    pub path: Vec<String>,
    pub body: Bytes,
}

/// What an order gives back.
pub type Reply<'a> = Pin<Box<dyn Future<Output = Result<Value, ApiError>> + Send + 'a>>;

/// Who carries orders out.
pub trait Control: Send + Sync {
    fn carry_out(&self, order: Order) -> Reply<'_>;
}
