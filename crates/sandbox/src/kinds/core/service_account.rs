//! Service accounts, as data: pods get none by themselves here.

use super::super::cell::{age, name};
use super::super::{Hooks, Kind};
use super::columns;

pub(super) fn kind() -> Kind {
    let mut kind = Kind::builtin("v1", "ServiceAccount", "serviceaccounts")
        .short(&["sa"])
        .columns(columns::serviceaccounts())
        .hooks(Hooks { row: |account, now| vec![name(account), age(account, now)], ..Hooks::default() });
    kind.returns_deleted = true;
    kind
}
