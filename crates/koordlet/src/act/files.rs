//! Files of groups that are read every second: opened once and kept.

use std::collections::HashMap;

use koord_linux::cgroup::Cgroups;
use koord_linux::error::Malformed;
use koord_linux::handle::{Buffer, Handle};
use koord_linux::resource::Resource;

use crate::apply::dir_of;
use crate::decide::wish::Place;

/// One resource's open files, by group.
pub(super) struct Files {
    resource: Resource,
    handles: HashMap<Place, Kept>,
    buffer: Buffer,
    /// Readings since the last look for files that nobody asks for.
    round: u64,
}

struct Kept {
    handle: Handle,
    round: u64,
}

impl Files {
    pub(super) fn new(resource: Resource) -> Files {
        Files { resource, handles: HashMap::new(), buffer: Buffer::default(), round: 0 }
    }

    /// What a file holds; none when it is not there or cannot be understood.
    pub(super) fn read<T>(
        &mut self,
        cgroups: &Cgroups,
        place: &Place,
        parse: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Option<T> {
        if !self.handles.contains_key(place) {
            let dir = dir_of(place, cgroups.driver())?;
            let handle = cgroups.handle(self.resource, &dir).ok()?;
            self.handles.insert(place.clone(), Kept { handle, round: self.round });
        }
        let kept = self.handles.get_mut(place)?;
        kept.round = self.round;
        parse(kept.handle.read(&mut self.buffer).ok()?).ok()
    }

    pub(super) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Closes files that were not read since the last call but one.
    pub(super) fn close_unread(&mut self) {
        let round = self.round;
        self.handles.retain(|_, kept| kept.round + 1 >= round);
        self.round += 1;
    }
}
