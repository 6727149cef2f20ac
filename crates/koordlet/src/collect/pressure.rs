//! Pressure stall information of pods and containers. Spec: koordlet-observe 5.10.

use std::sync::Arc;
use std::time::Duration;

use koord_linux::cgroup::{Cgroups, Dir};
use koord_linux::error::Error;
use koord_linux::handle::{Buffer, Handle};
use koord_linux::pressure::Pressure;
use koord_linux::resource::Resource;

use super::Pass;
use super::every::Every;
use super::group::Unread;
use super::pods::{PodRecord, Record};
use crate::store::{Id, Key, Kind};

/// Pressure of one pod or container.
#[derive(Clone, Debug, PartialEq)]
pub struct PressureReading {
    pub pod_uid: Arc<str>,
    pub pod_name: Arc<str>,
    pub pod_namespace: Arc<str>,
    /// Id and name; None for the pod as a whole.
    pub container: Option<(Arc<str>, Arc<str>)>,
    pub cpu: Pressure,
    pub memory: Pressure,
    pub io: Pressure,
}

/// As the property `psi_resource` spells them, in the order of the files.
const RESOURCES: [&str; 3] = ["cpu", "mem", "io"];

/// The open files of one group, and where its samples go.
#[derive(Debug)]
pub(super) struct PressureSlots {
    files: [Handle; 3],
    /// `some` and `full` of each resource.
    series: [[Id; 2]; 3],
    is_cpu_full_supported: Id,
}

impl PressureSlots {
    fn new(cgroups: &Cgroups, dir: &Dir) -> Result<PressureSlots, Error> {
        let handle = |resource| cgroups.handle(resource, dir);
        Ok(PressureSlots {
            files: [
                handle(Resource::CpuPressure)?,
                handle(Resource::MemoryPressure)?,
                handle(Resource::IoPressure)?,
            ],
            series: Default::default(),
            is_cpu_full_supported: Id::default(),
        })
    }

    fn read(&mut self, buffer: &mut Buffer) -> Result<[Pressure; 3], Unread> {
        let [cpu, memory, io] = &mut self.files;
        let mut read =
            |file: &mut Handle| -> Result<Pressure, Unread> { Ok(Pressure::parse(file.read(buffer)?)?) };
        Ok([read(cpu)?, read(memory)?, read(io)?])
    }

    /// Seven samples.
    fn add(&mut self, pass: &mut Pass<'_>, owner: &Owner<'_>, pressures: &[Pressure; 3]) {
        let at_ms = pass.now.unix_ms;
        for ((resource, pressure), slots) in RESOURCES.iter().zip(pressures).zip(&mut self.series) {
            let full = pressure.full.unwrap_or_default();
            let degrees = [("some", pressure.some.avg10), ("full", full.avg10)];
            for ((degree, value), slot) in degrees.into_iter().zip(slots) {
                let id = pass.store.place(slot, || owner.key(resource, degree));
                pass.batch.add(id, at_ms, value);
            }
        }
        let id = pass.store.place(&mut self.is_cpu_full_supported, || owner.support_key());
        pass.batch.add(id, at_ms, if pressures[0].full.is_some() { 1.0 } else { 0.0 });
    }
}

/// Whose pressure it is.
enum Owner<'a> {
    Pod { uid: &'a Arc<str> },
    Container { uid: &'a Arc<str>, id: &'a Arc<str> },
}

impl Owner<'_> {
    fn key(&self, resource: &str, degree: &str) -> Key {
        let [resource, precision, degree] = [resource, "10", degree].map(Arc::from);
        match self {
            Owner::Pod { uid } => Kind::PodPsi.of([uid, &resource, &precision, &degree]),
            Owner::Container { uid, id } => Kind::ContainerPsi.of([uid, id, &resource, &precision, &degree]),
        }
    }

    fn support_key(&self) -> Key {
        match self {
            Owner::Pod { uid } => Kind::PodPsiCpuFullSupported.of([uid]),
            Owner::Container { uid, id } => Kind::ContainerPsiCpuFullSupported.of([uid, id]),
        }
    }
}

pub(super) struct Collector {
    every: Every,
    has_started: bool,
    is_supported: bool,
    readings: Vec<PressureReading>,
}

impl Collector {
    pub(super) fn new(interval: Duration) -> Collector {
        Collector {
            every: Every::new(interval),
            has_started: false,
            is_supported: true,
            readings: Vec::new(),
        }
    }

    pub(super) fn run(&mut self, pass: &mut Pass<'_>, pods: &mut [PodRecord]) {
        if !self.is_supported || !self.every.is_due(pass.now.instant) {
            return;
        }
        self.has_started = true;
        if let Err(error) = pass.cgroups.require(Resource::CpuPressure, &pass.cgroups.kube_root()) {
            tracing::warn!(%error, "pressure is not measured");
            self.is_supported = false;
            return;
        }
        self.readings.clear();
        for PodRecord { pod, namespace, containers, .. } in pods {
            let uid = Arc::clone(&pod.id);
            let pod_name = Arc::clone(&pod.name);
            let mut measured = |record: &mut Record, is_pod: bool| {
                let id = Arc::clone(&record.id);
                let owner =
                    if is_pod { Owner::Pod { uid: &uid } } else { Owner::Container { uid: &uid, id: &id } };
                let Some([cpu, memory, io]) = measure(pass, record, &owner) else { return };
                self.readings.push(PressureReading {
                    pod_uid: Arc::clone(&uid),
                    pod_name: Arc::clone(&pod_name),
                    pod_namespace: Arc::clone(namespace),
                    container: (!is_pod).then(|| (Arc::clone(&record.id), Arc::clone(&record.name))),
                    cpu,
                    memory,
                    io,
                });
            };
            containers.iter_mut().for_each(|container| measured(container, false));
            measured(pod, true);
        }
        pass.commit("PerformanceCollector");
    }

    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    pub(super) fn readings(&self) -> &[PressureReading] {
        &self.readings
    }
}

/// Reads the three files of a group and adds their samples. None when one of them cannot be read.
fn measure(pass: &mut Pass<'_>, record: &mut Record, owner: &Owner<'_>) -> Option<[Pressure; 3]> {
    if record.pressure.is_none() {
        record.pressure = PressureSlots::new(pass.cgroups, record.group.dir()).ok().map(Box::new);
    }
    let slots = record.pressure.as_mut()?;
    let read = slots.read(pass.buffer).inspect_err(|error| {
        if !error.is_missing() {
            tracing::warn!(group = %record.group.dir(), %error, "pressure cannot be read");
        }
    });
    let pressures = read.ok()?;
    slots.add(pass, owner, &pressures);
    Some(pressures)
}
