//! A fleet on an API without a wire: nodes register, pods live and die, koordlet reports.
//!
//! Time is tokio's own and stands still while anybody works, so hours pass in moments.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod hosts;
mod nodes;
mod pods;
mod reports;
mod support;
mod together;
