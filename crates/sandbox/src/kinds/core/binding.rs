//! Bindings: how a scheduler puts a pod on a node. Never stored.

use super::super::Kind;

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "Binding", "bindings");
    kind.verbs = &["create"];
    kind
}
