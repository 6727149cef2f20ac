//! How Kubernetes picks objects: by labels, by fields, and nodes by either.
//!
//! Pure. `label` holds compiled label selectors, `text` their `kubectl -l` form, `field` field
//! selectors, `node` node selectors and node affinity, `syntax` what a label may look like and how
//! a wrong one is reported. All wording is apimachinery's. Spec: api 1.3.

pub mod field;
pub mod label;
pub mod node;
pub mod syntax;
mod text;

pub use field::FieldSelector;
pub use label::{Labels, Operator, Requirement, Selector};
pub use node::{NodeSelector, PreferredTerms, Relaxed, RequiredNodeAffinity};
pub use syntax::SelectorError;
