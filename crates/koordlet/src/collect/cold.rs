//! Cold page cache of the node, pods, containers and host applications, as kidled counts it. Spec: koordlet-observe 5.11.

use std::sync::Arc;
use std::time::Duration;

use koord_linux::cgroup::{Cgroups, Dir};
use koord_linux::error::Error;
use koord_linux::handle::{Buffer, Handle};
use koord_linux::idle_pages::{COLD_FROM, Kidled, KidledState, cold_bytes};
use koord_linux::memory_stat::MemoryStat;
use koord_linux::resource::Resource;
use koord_linux::root::Root;
use koord_linux::stat::MemInfo;

use super::Pass;
use super::every::Every;
use super::group::{Unread, bytes};
use super::host_apps;
use super::pods::PodRecord;
use crate::store::{Id, Key, Kind};

/// The open files of one group, and where its samples go.
#[derive(Debug)]
pub(super) struct ColdSlots {
    idle: Handle,
    /// None for the whole node, whose memory is known already.
    memory: Option<Handle>,
    cold: Id,
    hot: Id,
}

impl ColdSlots {
    fn of_group(cgroups: &Cgroups, dir: &Dir) -> Result<ColdSlots, Error> {
        let memory = Some(cgroups.handle(Resource::MemoryStat, dir)?);
        Ok(ColdSlots { memory, ..ColdSlots::of_node(cgroups, dir)? })
    }

    fn of_node(cgroups: &Cgroups, dir: &Dir) -> Result<ColdSlots, Error> {
        let idle = cgroups.handle(Resource::MemoryIdlePageStats, dir)?;
        Ok(ColdSlots { idle, memory: None, cold: Id::default(), hot: Id::default() })
    }

    fn cold(&mut self, buffer: &mut Buffer) -> Result<u64, Unread> {
        Ok(cold_bytes(self.idle.read(buffer)?, COLD_FROM)?)
    }

    /// Two samples; nothing when a file cannot be read. `used` is for groups whose memory is known.
    fn add(
        &mut self,
        pass: &mut Pass<'_>,
        used: Option<u64>,
        cold_key: impl Fn() -> Key,
        hot_key: impl Fn() -> Key,
    ) {
        let Ok(cold) = self.cold(pass.buffer) else { return };
        let used = used.or_else(|| {
            let content = self.memory.as_mut()?.read(pass.buffer).ok()?;
            MemoryStat::parse(pass.cgroups.version(), content).ok().map(|stat| stat.used_with_page_cache())
        });
        let Some(used) = used else { return };
        let at_ms = pass.now.unix_ms;
        let id = pass.store.place(&mut self.cold, cold_key);
        pass.batch.add(id, at_ms, bytes(cold));
        let id = pass.store.place(&mut self.hot, hot_key);
        // Differs: upstream wraps around where more is cold than in use.
        pass.batch.add(id, at_ms, bytes(used.saturating_sub(cold)));
    }
}

/// Adds the samples of one group, whose files are opened at the first round.
fn add_group(
    pass: &mut Pass<'_>,
    slots: &mut Option<Box<ColdSlots>>,
    dir: &Dir,
    name: &Arc<str>,
    [cold, hot]: [Kind; 2],
) {
    if slots.is_none() {
        *slots = ColdSlots::of_group(pass.cgroups, dir).ok().map(Box::new);
    }
    if let Some(slots) = slots {
        slots.add(pass, None, || cold.of([name]), || hot.of([name]));
    }
}

pub(super) struct Collector {
    every: Every,
    kidled: Kidled,
    before: KidledState,
    node: Option<ColdSlots>,
}

impl Collector {
    /// Switches kidled on. None on a kernel without it, or where it cannot be switched.
    pub(super) fn enable(root: &Root, interval: Duration) -> Option<Collector> {
        let kidled = Kidled::find(root)?;
        let before = kidled
            .enable()
            .inspect_err(|error| tracing::warn!(%error, "cold pages are not measured"))
            .ok()?;
        Some(Collector { every: Every::new(interval), kidled, before, node: None })
    }

    pub(super) fn run(
        &mut self,
        pass: &mut Pass<'_>,
        memory: Option<MemInfo>,
        pods: &mut [PodRecord],
        apps: &mut [host_apps::Record],
    ) {
        if !self.every.is_due(pass.now.instant) {
            return;
        }
        if self.node.is_none() {
            self.node = ColdSlots::of_node(pass.cgroups, &Dir::root()).ok();
        }
        if let Some((node, memory)) = self.node.as_mut().zip(memory) {
            let used = Some(memory.used_with_page_cache_bytes());
            let keys = [Kind::NodeMemoryColdPageSize, Kind::NodeMemoryWithHotPageUsage];
            node.add(pass, used, || keys[0].of([]), || keys[1].of([]));
        }
        for record in pods {
            let pod = &mut record.pod;
            let kinds = [Kind::PodMemoryColdPageSize, Kind::PodMemoryWithHotPageUsage];
            add_group(pass, &mut pod.cold, pod.group.dir(), &pod.id, kinds);
            for container in &mut record.containers {
                let kinds = [Kind::ContainerMemoryColdPageSize, Kind::ContainerMemoryWithHotPageUsage];
                add_group(pass, &mut container.cold, container.group.dir(), &container.id, kinds);
            }
        }
        for app in apps {
            let kinds =
                [Kind::HostApplicationMemoryColdPageSize, Kind::HostApplicationMemoryWithHotPageUsage];
            add_group(pass, &mut app.cold, app.group.dir(), &app.name, kinds);
        }
        pass.commit("ColdPageCollector");
    }

    /// Puts kidled's switches back.
    pub(super) fn stop(self) {
        if let Err(error) = self.kidled.restore(&self.before) {
            tracing::warn!(%error, "kidled keeps running");
        }
    }
}
