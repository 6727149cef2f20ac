//! Rules for a quota beside its parent and its children. Spec: manager 17.4, topology check; the five rules of 17.1.

use koord_api::crd::elastic_quota::ROOT_QUOTA;
use koord_api::quantity::ResourceList;

use super::QuotaGates;
use super::amounts::{add, has_all_keys, is_within, larger};
use super::info::QuotaInfo;
use super::ledger::Ledger;
use super::validate::BoundPods;
use crate::webhook::denial::Denial;

/// What a quota was before the change, on update.
pub(super) struct Before<'q> {
    pub(super) info: &'q QuotaInfo,
    pub(super) pods: &'q dyn BoundPods,
}

pub(super) fn check(
    ledger: &Ledger,
    before: Option<&Before<'_>>,
    quota: &QuotaInfo,
    gates: QuotaGates,
) -> Result<(), Denial> {
    if quota.name() == ROOT_QUOTA {
        return Ok(());
    }
    if let Some(before) = before {
        check_is_parent_change(ledger, before, quota)?;
    }
    check_tree_id(ledger, before.map(|before| before.info), quota)?;
    if quota.is_top() && !quota.is_parent {
        return Ok(());
    }
    check_parent(ledger, quota)?;
    check_ancestors(ledger, quota)?;
    check_keys(ledger, quota, gates.update_resource_key).map_err(|text| {
        let prefix =
            "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed";
        Denial::bad_request(format!("{prefix}: {text}"))
    })?;
    check_min_sum(ledger, quota)?;
    if gates.guarantee_usage { check_guarantee(ledger, quota) } else { Ok(()) }
}

/// A parent with children stays one; a quota with pods does not become one.
fn check_is_parent_change(ledger: &Ledger, before: &Before<'_>, quota: &QuotaInfo) -> Result<(), Denial> {
    if before.info.is_parent == quota.is_parent {
        return Ok(());
    }
    let name = quota.name();
    if !quota.is_parent {
        if ledger.children_count(name) == 0 {
            return Ok(());
        }
        let text = "quota has children, isParent is forbidden to modify as false, quotaName:";
        return Err(Denial::bad_request(format!("{text}{name}")));
    }
    let pods = before.pods;
    let namespaces = before.info.namespaces.iter().map(String::as_str);
    let has_pods = pods.labelled(name).count > 0
        || std::iter::once(name).chain(namespaces).any(|namespace| pods.any_in(namespace));
    if !has_pods {
        return Ok(());
    }
    let text = "quota has bound pods, isParent is forbidden to modify as true, quotaName:";
    Err(Denial::bad_request(format!("{text} {name}")))
}

/// A tree stays together.
fn check_tree_id(ledger: &Ledger, before: Option<&QuotaInfo>, quota: &QuotaInfo) -> Result<(), Denial> {
    let (name, id) = (quota.name(), &quota.tree_id);
    if let Some(before) = before
        && before.tree_id != *id
    {
        return Err(Denial::bad_request(format!("{name} tree id changed [{}] vs [{id}]", before.tree_id)));
    }
    let parent = if quota.is_top() { None } else { ledger.get(&quota.parent) };
    let mut others = parent
        .map(|info| ("parent", info))
        .into_iter()
        .chain(ledger.children(name).map(|info| ("child", info)));
    let Some((role, other)) = others.find(|(_, other)| other.tree_id != *id) else { return Ok(()) };
    let (other, theirs) = (other.name(), &other.tree_id);
    let text = format!("{name} tree id is different from {role} {other}, [{id}] vs [{theirs}]");
    Err(Denial::bad_request(text))
}

/// Differs: upstream lets a quota stand below itself. Spec: manager 26 DB-29.
fn check_ancestors(ledger: &Ledger, quota: &QuotaInfo) -> Result<(), Denial> {
    let is_own_ancestor = ancestors(ledger, &quota.parent).any(|name| name == quota.name());
    if !is_own_ancestor {
        return Ok(());
    }
    Err(Denial::bad_request(format!("quota {} can not be its own ancestor", quota.name())))
}

/// Names from a quota upwards without the root. Ends even where quotas already stand in a circle.
fn ancestors<'l>(ledger: &'l Ledger, from: &'l str) -> impl Iterator<Item = &'l str> {
    let mut seen = Vec::new();
    std::iter::successors(Some(from), |name| ledger.get(name).map(|info| info.parent.as_str())).take_while(
        move |name| {
            let goes_on = !name.is_empty() && *name != ROOT_QUOTA && !seen.contains(name);
            seen.push(*name);
            goes_on
        },
    )
}

/// Rule 4: only parents have children.
fn check_parent(ledger: &Ledger, quota: &QuotaInfo) -> Result<(), Denial> {
    if quota.is_top() {
        return Ok(());
    }
    let start = format!("{} has parentName {} but", quota.name(), quota.parent);
    match ledger.get(&quota.parent) {
        None => Err(Denial::bad_request(format!("{start} not find parentInfo in quotaInfoMap"))),
        Some(parent) if !parent.is_parent => {
            Err(Denial::bad_request(format!("{start} the parentQuotaInfo's IsParent is false")))
        }
        Some(_) => Ok(()),
    }
}

/// Quotas above and below each other speak of the same resources.
fn check_keys(ledger: &Ledger, quota: &QuotaInfo, is_relaxed: bool) -> Result<(), String> {
    if !quota.is_top()
        && let Some(parent) = ledger.get(&quota.parent)
    {
        check_key_pair(parent, quota, (&quota.parent, quota.name()), is_relaxed)?;
    }
    let mut children = ledger.children(quota.name());
    children.try_for_each(|child| check_key_pair(quota, child, (child.name(), quota.name()), is_relaxed))
}

/// `differ` are the names in the order in which upstream says that the keys of max differ.
fn check_key_pair(
    parent: &QuotaInfo,
    child: &QuotaInfo,
    differ: (&str, &str),
    is_relaxed: bool,
) -> Result<(), String> {
    let (above, below) = (parent.name(), child.name());
    if !has_all_keys(&parent.max, &child.max) || (!is_relaxed && !has_all_keys(&child.max, &parent.max)) {
        return Err(if is_relaxed {
            format!("{below}'s max keys are not all included in {above}'s")
        } else {
            format!("{}'s max keys are not the same with {}'s", differ.0, differ.1)
        });
    }
    if has_all_keys(&parent.min, &child.min) {
        return Ok(());
    }
    Err(format!("{below}'s min keys are not all included in {above}'s"))
}

/// Rule 1: what is promised to children was promised to their parent.
fn check_min_sum(ledger: &Ledger, quota: &QuotaInfo) -> Result<(), Denial> {
    if quota.allows_force_update || quota.is_tree_root {
        return Ok(());
    }
    if !quota.is_top()
        && let Some(parent) = ledger.get(&quota.parent)
    {
        let mut sum = sum_below(ledger, &quota.parent, quota.name(), |info| &info.min);
        add(&mut sum, &quota.min);
        if !is_within(&sum, &parent.min) {
            let text = "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent:";
            return Err(Denial::bad_request(format!("{text} {}", quota.parent)));
        }
    }
    let below = sum_below(ledger, quota.name(), "", |info| &info.min);
    if ledger.children_count(quota.name()) == 0 || is_within(&below, &quota.min) {
        return Ok(());
    }
    let text = "checkMinQuotaSum all children's MinQuota > current MinQuota, current:";
    Err(Denial::bad_request(format!("{text} {}", quota.name())))
}

/// Some quota from the parent upwards must already be guaranteed what this one newly needs.
fn check_guarantee(ledger: &Ledger, quota: &QuotaInfo) -> Result<(), Denial> {
    if quota.allows_force_update || quota.tree_id.is_empty() || quota.is_tree_root {
        return Ok(());
    }
    if is_within(&quota.min, &quota.guaranteed) {
        return Ok(());
    }
    let name = quota.name();
    let mut need = larger(quota.min.clone(), &quota.guaranteed);
    let mut top = name;
    for above in ancestors(ledger, &quota.parent) {
        let Some(parent) = ledger.get(above) else {
            return Err(Denial::bad_request(format!("parent {above} not found {name}")));
        };
        let mut together = sum_below(ledger, above, top, |info| &info.guaranteed);
        add(&mut together, &need);
        need = larger(together, &parent.min);
        if is_within(&need, &parent.guaranteed) {
            return Ok(());
        }
        top = above;
    }
    Err(Denial::bad_request(format!("tree root quota {top} can't guarantee for min {name}")))
}

/// The amounts of all children but one together.
fn sum_below<'l>(
    ledger: &'l Ledger,
    parent: &str,
    except: &str,
    amounts: impl Fn(&'l QuotaInfo) -> &'l ResourceList,
) -> ResourceList {
    let mut sum = ResourceList::new();
    let children = ledger.children(parent).filter(|child| child.name() != except);
    children.for_each(|child| add(&mut sum, amounts(child)));
    sum
}
