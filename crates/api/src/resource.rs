//! What is counted: resource names as small numbers, and amounts of several resources at once.
//!
//! Pure, and made for a hot path: names are interned once per table, sums touch six integers and
//! allocate nothing unless rare resources are in play. The names themselves are in
//! `keys::resource`.

mod table;
mod vector;

pub use table::{ResourceId, ResourceTable};
pub use vector::ResourceVector;
