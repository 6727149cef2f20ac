//! CPU sets on cgroup v1 that are copies: runtimes give a new group what its parent has at that moment.
//!
//! Once a parent has what we gave it, the sets of groups that come later are ours as well, whoever wrote them. They go
//! back with the parent's, to what it goes back to. On v2 such a set is empty and follows by itself.

use std::collections::HashMap;

use koord_api::qos::KubeQos;
use koord_linux::cgroup::{Cgroups, Dir, Version, cpus};
use koord_linux::executor::{INHERITED, Target, Update};
use koord_linux::resource::Resource;

use super::undo::{Change, Undo};

/// Whether what a file holds can only be a copy of what we gave a group above.
pub(super) fn is_copy(undo: &Undo, version: Version, target: &Target) -> bool {
    let Target::Cgroup { resource: Resource::CpusetCpus, dir } = target else { return false };
    let mut above = std::iter::successors(dir.parent(), Dir::parent);
    version == Version::V1 && above.any(|group| undo.has_set(&group))
}

/// Takes note of groups of best-effort pods that we never had to write to, for they began with what was wanted.
pub(super) fn take_in(undo: &mut Undo, cgroups: &Cgroups, is_meant: &dyn Fn(&Change<'_>) -> bool) {
    let top = cgroups.qos_dir(KubeQos::BestEffort);
    if cgroups.version() != Version::V1 || !undo.is_set_meant(&top, is_meant) {
        return;
    }
    let children = |dir: &Dir| -> Vec<Dir> {
        let names = cgroups.children(dir).unwrap_or_default();
        names.iter().map(|name| dir.child(name)).collect()
    };
    for pod in children(&top) {
        undo.inherit_set(&pod, &top);
        children(&pod).iter().for_each(|container| undo.inherit_set(container, &pod));
    }
}

/// Gives copies the value that their parents get or have, from the top down.
pub(super) fn fill_in(cgroups: &Cgroups, updates: &mut [Update]) {
    if cgroups.version() != Version::V1 {
        return;
    }
    let mut sets: Vec<(Dir, &mut String)> = Vec::new();
    for update in updates {
        if let Target::Cgroup { resource: Resource::CpusetCpus, dir } = &update.target {
            sets.push((dir.clone(), &mut update.value));
        }
    }
    sets.sort_by_key(|(dir, _)| dir.depth());
    let mut given: HashMap<Dir, String> = HashMap::new();
    for (dir, value) in sets {
        let parent = dir.parent().filter(|_| value == INHERITED);
        let set = |parent: Dir| {
            let held = || Some(cgroups.read(Resource::CpusetCpus, &parent, cpus).ok()?.to_string());
            given.get(&parent).cloned().or_else(held)
        };
        if let Some(set) = parent.and_then(set) {
            *value = set;
        }
        given.insert(dir, value.clone());
    }
}
