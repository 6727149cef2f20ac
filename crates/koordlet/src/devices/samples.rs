//! What pods and containers use of GPUs, from one reading and their processes. Spec: koordlet-observe 6.1.

use std::collections::HashMap;
use std::sync::Arc;

use koord_linux::cgroup::{Cgroups, ContainerId, Dir, ids};
use koord_linux::handle::{Buffer, Handle};
use koord_linux::resource::Resource;

use super::gpu::{Reading, Usage};
use crate::state::PodState;

/// Whose use a sample tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'s> {
    Node,
    /// By uid.
    Pod(&'s Arc<str>),
    /// By id, such as `containerd://1f`.
    Container(&'s Arc<str>),
}

/// Files with the processes of containers, kept open while any process is on a GPU.
pub struct Samples {
    cgroups: Arc<Cgroups>,
    open: HashMap<Arc<str>, Open>,
    buffer: Buffer,
    round: u64,
}

struct Open {
    handle: Handle,
    /// The last round in which the container was there.
    round: u64,
}

impl Samples {
    pub fn new(cgroups: Arc<Cgroups>) -> Samples {
        Samples { cgroups, open: HashMap::new(), buffer: Buffer::default(), round: 0 }
    }

    /// Hands out what the node, its pods and their containers use: every card for the node, the cards that they touch
    /// for the others. A container that cannot be read hides only itself.
    pub fn round(
        &mut self,
        reading: &Reading,
        pods: &[Arc<PodState>],
        sink: &mut dyn FnMut(Subject<'_>, &Usage<'_>),
    ) {
        reading.of_node().for_each(|usage| sink(Subject::Node, &usage));
        if !reading.is_used() {
            self.open.clear();
            return;
        }
        self.round += 1;
        for pod in pods {
            let mut processes: Vec<u32> = Vec::new();
            for container in pod.pod.containers.iter().filter(|container| container.is_running) {
                let Some(id) = &container.id else { continue };
                let Some(own) = self.processes(&pod.dir, id) else { continue };
                for usage in reading.of_processes(|pid| own.contains(&pid)) {
                    sink(Subject::Container(id), &usage);
                }
                processes.extend(own);
            }
            for usage in reading.of_processes(|pid| processes.contains(&pid)) {
                sink(Subject::Pod(pod.uid()), &usage);
            }
        }
        let round = self.round;
        self.open.retain(|_, open| open.round == round);
    }

    fn processes(&mut self, pod: &Dir, id: &Arc<str>) -> Option<Vec<u32>> {
        if !self.open.contains_key(id) {
            let container: ContainerId = id.parse().ok()?;
            let dir = self.cgroups.container_dir(pod, &container);
            let handle = self.cgroups.handle(Resource::Procs, &dir).ok()?;
            self.open.insert(id.clone(), Open { handle, round: self.round });
        }
        let open = self.open.get_mut(id)?;
        open.round = self.round;
        ids(open.handle.read(&mut self.buffer).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use k8s_openapi::api::core::v1;
    use koord_linux::cgroup::{Driver, Version};
    use koord_linux::nvml::{GpuUse, ProcessUse};
    use koord_linux::root::Root;
    use serde_json::json;

    use super::*;
    use crate::devices::gpu::GpuReading;

    fn pod(uid: &str, containers: &[&str]) -> Arc<PodState> {
        let names = containers.iter().map(|id| json!({"name": id}));
        let statuses = containers.iter().map(|id| {
            json!({"name": id, "containerID": format!("containerd://{id}"), "image": "", "imageID": "",
                "ready": true, "restartCount": 0, "state": {"running": {}}})
        });
        let object: v1::Pod = serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "default", "uid": uid},
            "spec": {"containers": names.collect::<Vec<_>>()},
            "status": {"phase": "Running", "qosClass": "BestEffort",
                "containerStatuses": statuses.collect::<Vec<_>>()},
        }))
        .unwrap();
        Arc::new(PodState::read(&object, Driver::Cgroupfs))
    }

    #[test]
    fn processes_lead_to_pods() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::host(tree.path());
        let cgroups = Arc::new(Cgroups::new(&root, Version::V2, Driver::Cgroupfs));
        let pods = [pod("busy", &["a1", "a2", "a3"]), pod("idle", &["b1"])];
        for (pod, container, content) in
            [(&pods[0], "a1", "1\n9\n"), (&pods[0], "a2", "2\n"), (&pods[1], "b1", "7\n")]
        {
            let id: ContainerId = format!("containerd://{container}").parse().unwrap();
            let dir = cgroups.group(None, &cgroups.container_dir(&pod.dir, &id));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("cgroup.procs"), content).unwrap();
        }
        let process = |pid, busy_percent, memory_bytes| ProcessUse { pid, busy_percent, memory_bytes };
        let usage = |processes| GpuUse { processes, ..GpuUse::default() };
        let gpu = |minor, usage| GpuReading { minor, uuid: "u".into(), usage };
        let mut reading = Reading {
            gpus: vec![
                gpu(0, usage(vec![process(1, 30, 1500), process(2, 20, 500), process(4, 5, 1)])),
                gpu(1, usage(vec![])),
            ],
        };
        let mut samples = Samples::new(cgroups);
        let mut seen = Vec::new();
        let mut take = |samples: &mut Samples, reading: &Reading, pods: &[Arc<PodState>]| {
            seen.clear();
            samples.round(reading, pods, &mut |subject, usage| {
                seen.push((format!("{subject:?}"), usage.gpu.minor, usage.core, usage.memory_bytes));
            });
            seen.clone()
        };
        // The container a3 has no directory any more; that hides none of the others.
        let want = [
            ("Node", 0, 55.0, 2001.0),
            ("Node", 1, 0.0, 0.0),
            (r#"Container("containerd://a1")"#, 0, 30.0, 1500.0),
            (r#"Container("containerd://a2")"#, 0, 20.0, 500.0),
            (r#"Pod("busy")"#, 0, 50.0, 2000.0),
        ]
        .map(|(subject, minor, core, memory)| (subject.to_owned(), minor, core, memory));
        assert_eq!(take(&mut samples, &reading, &pods), want);
        assert_eq!(take(&mut samples, &reading, &pods), want);
        let opens = |samples: &Samples| samples.open.values().map(|open| open.handle.opens()).sum::<u32>();
        assert_eq!(opens(&samples), 3, "files stay open");
        take(&mut samples, &reading, &pods[1..]);
        assert_eq!(samples.open.len(), 1, "files of ended pods are closed");
        reading.gpus[0].usage.processes.clear();
        assert_eq!(take(&mut samples, &reading, &pods).len(), 2, "an idle node tells of its cards alone");
        assert!(samples.open.is_empty());
    }
}
