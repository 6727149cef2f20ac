//! Who gets how much CPU: every group within its own limits and those above it, by weight where there is too little.

use std::collections::BTreeMap;

use koord_api::cpuset::CpuSet;

use crate::nodes::usage::Use;

/// What a group's files allow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit {
    /// None or no CPU at all: those of its parent.
    pub(crate) cpus: Option<CpuSet>,
    /// Thousandths of a core.
    pub(crate) quota_milli: Option<i64>,
    /// Its weight beside its siblings.
    pub(crate) shares: i64,
    /// Bytes.
    pub(crate) memory: Option<i64>,
}

/// A group with all below it. Only containers want something themselves.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) path: String,
    pub(super) limit: Limit,
    pub(super) wants: Use,
    pub(super) children: Vec<Group>,
}

/// What a group has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Thousandths of a core.
    pub(super) cpu: i64,
    /// What it would use if nobody held it back.
    pub(super) wanted: i64,
    pub(super) has_quota: bool,
    /// Its quota holds it back.
    pub(super) is_throttled: bool,
    /// Bytes.
    pub(super) memory: i64,
    /// CPUs that it may use.
    pub(super) cpus: CpuSet,
}

/// Shares `room` thousandths of cores on these CPUs.
pub(super) fn share(root: &Group, cpus: &CpuSet, room: i64) -> BTreeMap<String, Share> {
    let mut shares = BTreeMap::new();
    let asked = ask(root, cpus);
    give(&asked, room, &mut shares);
    shares
}

/// A group's claim, within its own limits and its parent's CPUs.
struct Claim<'g> {
    group: &'g Group,
    cpus: CpuSet,
    /// What those below would use, and what they may.
    wanted: i64,
    open: i64,
    claimed: i64,
    memory: i64,
    children: Vec<Claim<'g>>,
}

fn ask<'g>(group: &'g Group, above: &CpuSet) -> Claim<'g> {
    let own = group.limit.cpus.as_ref().map(|cpus| cpus & above).filter(|cpus| !cpus.is_empty());
    let cpus = own.unwrap_or_else(|| above.clone());
    let children: Vec<Claim<'g>> = group.children.iter().map(|child| ask(child, &cpus)).collect();
    let sum = |of: fn(&Claim<'g>) -> i64| children.iter().map(of).sum::<i64>();
    let wanted = group.wants.cpu + sum(|child| child.wanted);
    let open = group.wants.cpu + sum(|child| child.claimed);
    let width = i64::try_from(cpus.len()).unwrap_or(i64::MAX).saturating_mul(1000);
    let claimed = open.min(width).min(group.limit.quota_milli.unwrap_or(i64::MAX));
    let memory = group.wants.memory + sum(|child| child.memory);
    let memory = memory.min(group.limit.memory.unwrap_or(i64::MAX));
    Claim { group, cpus, wanted, open, claimed, memory, children }
}

fn give(claim: &Claim<'_>, room: i64, shares: &mut BTreeMap<String, Share>) {
    let cpu = claim.claimed.min(room);
    let quota = claim.group.limit.quota_milli;
    let share = Share {
        cpu,
        wanted: claim.wanted,
        has_quota: quota.is_some(),
        is_throttled: quota.is_some_and(|quota| claim.open > quota && cpu >= quota),
        memory: claim.memory,
        cpus: claim.cpus.clone(),
    };
    shares.insert(claim.group.path.clone(), share);
    let claims: Vec<(i64, i64)> =
        claim.children.iter().map(|child| (child.claimed, child.group.limit.shares.max(1))).collect();
    for (child, part) in claim.children.iter().zip(divide(cpu, &claims)) {
        give(child, part, shares);
    }
}

/// Divides an amount among claims by weight; nobody gets more than claimed, and what one leaves is for the others.
fn divide(amount: i64, claims: &[(i64, i64)]) -> Vec<i64> {
    let mut parts: Vec<Option<i64>> = vec![None; claims.len()];
    let mut left = amount;
    loop {
        let open = claims.iter().zip(&parts).filter(|(_, part)| part.is_none());
        let weights: i64 = open.map(|((_, weight), _)| weight).sum();
        let fair = |weight: i64| {
            let part = i128::from(left) * i128::from(weight) / i128::from(weights.max(1));
            i64::try_from(part).unwrap_or(i64::MAX)
        };
        let content: Vec<usize> =
            (0..claims.len()).filter(|i| parts[*i].is_none() && claims[*i].0 <= fair(claims[*i].1)).collect();
        if content.is_empty() {
            let rest = |(part, (_, weight)): (Option<i64>, &(i64, i64))| part.unwrap_or(fair(*weight));
            return parts.into_iter().zip(claims).map(rest).collect();
        }
        for i in content {
            parts[i] = Some(claims[i].0);
            left -= claims[i].0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_divided_by_weight() {
        for (amount, claims, want) in [
            (1000, vec![(300, 1), (400, 1)], vec![300, 400]),
            (1000, vec![(900, 1), (900, 1)], vec![500, 500]),
            (1000, vec![(900, 3), (900, 1)], vec![750, 250]),
            (1000, vec![(100, 3), (900, 1), (900, 1)], vec![100, 450, 450]),
            (1000, vec![(900, 1024), (900, 2)], vec![900, 100]),
            (0, vec![(900, 1)], vec![0]),
            (5, vec![], vec![]),
        ] {
            assert_eq!(divide(amount, &claims), want, "{amount} {claims:?}");
        }
    }

    fn leaf(path: &str, cpu: i64, limit: Limit) -> Group {
        Group { path: path.to_owned(), limit, wants: Use { cpu, memory: 100 }, children: Vec::new() }
    }

    #[test]
    fn limits_of_every_level_count() {
        let cpus = |text: &str| Some(text.parse().unwrap());
        let top = Limit { cpus: cpus("0-2"), ..Limit::default() };
        let quota = Limit { quota_milli: Some(500), memory: Some(60), ..Limit::default() };
        let wide = Limit { cpus: cpus("2-7"), ..Limit::default() };
        let root = Group {
            path: "be".to_owned(),
            limit: top,
            wants: Use::default(),
            children: vec![
                leaf("be/a", 4000, Limit::default()),
                leaf("be/b", 4000, quota),
                leaf("be/c", 4000, wide),
            ],
        };
        let shares = share(&root, &CpuSet::range(0..=7), 8000);
        let cpu = |path: &str| shares[path].cpu;
        assert_eq!((cpu("be"), cpu("be/a"), cpu("be/b"), cpu("be/c")), (3000, 1500, 500, 1000));
        assert!(shares["be/b"].is_throttled && !shares["be/a"].is_throttled && !shares["be"].has_quota);
        assert_eq!((shares["be/b"].memory, shares["be"].memory, shares["be"].wanted), (60, 260, 12000));
        assert_eq!(shares["be/c"].cpus, "2".parse().unwrap());
        assert_eq!(share(&root, &CpuSet::range(0..=7), 600)["be"].cpu, 600, "no more than there is");
    }
}
