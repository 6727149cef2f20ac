//! Files of groups that are read every second: opened once and kept.

use std::collections::HashMap;

use koord_linux::cgroup::{Cgroups, Dir};
use koord_linux::error::Malformed;
use koord_linux::handle::{Buffer, Handle};
use koord_linux::resource::Resource;

/// Open files by group and resource.
#[derive(Default)]
pub(super) struct Files {
    handles: HashMap<(Resource, Dir), Kept>,
    buffer: Buffer,
    /// Readings since the last look for files that nobody asks for.
    round: u64,
}

struct Kept {
    handle: Handle,
    round: u64,
}

impl Files {
    /// What a file holds; none when it is not there or cannot be understood.
    pub(super) fn read<T>(
        &mut self,
        cgroups: &Cgroups,
        resource: Resource,
        dir: &Dir,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Option<T> {
        let key = (resource, dir.clone());
        let round = self.round;
        let kept = match self.handles.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Kept { handle: cgroups.handle(resource, dir).ok()?, round })
            }
        };
        kept.round = round;
        parse(kept.handle.read(&mut self.buffer).ok()?).ok()
    }

    /// Closes files that were not read since the last call but one.
    pub(super) fn close_unread(&mut self) {
        let round = self.round;
        self.handles.retain(|_, kept| kept.round + 1 >= round);
        self.round += 1;
    }
}
