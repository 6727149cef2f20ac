//! Network QoS through terway: two files that its daemon reads. Spec: koordlet-enforce 15.8.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::{fs, io};

use super::leave::{Trace, remove_file};
use super::{Ground, Hands, Setting, Strategy};
use crate::audit::Subject;
use crate::decide::hooks::terway::{self, NodeRates, PodRates};
use crate::metrics::Metric;
use crate::records::{NETWORK, Records};
use crate::state::News;

const NODE_FILE: &str = "global_bps_config";
const POD_FILE: &str = "pod.json";
/// Where the daemon looks for a pod's packets.
const NET_CLS: &str = "/sys/fs/cgroup/net_cls";

/// The strategy and what it remembers.
#[derive(Default)]
pub(super) struct Terway {
    /// What the daemon was told of pods, by uid. None before what an earlier run told it was looked for.
    told: Option<BTreeMap<String, PodRates>>,
    /// What was last said about the configuration, so that it is said once.
    complaint: String,
}

impl Strategy for Terway {
    fn is_urgent(&self, news: News) -> bool {
        news.pods || news.slo
    }

    fn turn(&mut self, setting: &Setting, ground: &Ground<'_>, hands: &mut Hands<'_>) {
        let Some(slo) = ground.snapshot.slo.as_deref() else { return };
        let dir = setting.terway_dir.as_path();
        if !terway::is_on(&slo.qos) {
            self.told = None;
            return self.remove(setting, hands.applier.records());
        }
        match NodeRates::of(&slo.qos, &slo.system) {
            Ok(rates) => {
                if !self.write(setting, hands, NODE_FILE, &rates.text(), &rates) {
                    return;
                }
            }
            Err(error) => {
                self.complain(&error.to_string());
                // Nothing good was ever told, so it is not switched on yet.
                if !dir.join(NODE_FILE).exists() {
                    return;
                }
            }
        }
        let cgroups = &setting.cgroups;
        let place = |pod: &crate::decide::snapshot::Pod| {
            format!("{NET_CLS}/{}", cgroups.pod_dir(pod.id.kube_qos, &pod.id.uid))
        };
        let (pods, problems) = terway::pods(ground.pods, place);
        for problem in problems {
            tracing::debug!(problem, "a pod is left out of terway's file");
        }
        let count = terway::Count::of(&pods);
        let told = self.told.take().unwrap_or_else(|| terway::pods_of(&read(&dir.join(POD_FILE))));
        let is_there = self.write(setting, hands, POD_FILE, &terway::pods_text(&pods), &count);
        self.told = Some(if is_there { tell_pods(&told, pods, hands.applier.records()) } else { told });
    }
}

/// Removes both files, where they are, and says how many were.
pub(super) fn give_back(dir: &Path) -> io::Result<usize> {
    [NODE_FILE, POD_FILE]
        .iter()
        .try_fold(0, |count, file| Ok(count + usize::from(remove_file(&dir.join(file))?)))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Says what is new to the pods that it is about; returns what all were told.
fn tell_pods(
    told: &BTreeMap<String, PodRates>,
    pods: BTreeMap<String, PodRates>,
    records: &Records,
) -> BTreeMap<String, PodRates> {
    for (uid, rates) in pods.iter().filter(|(uid, rates)| told.get(*uid) != Some(*rates)) {
        records.tell_pod(uid, "", NETWORK, &format!("update {POD_FILE}; {rates}"));
    }
    pods
}

impl Terway {
    fn remove(&mut self, setting: &Setting, records: &Records) {
        let dir = setting.terway_dir.as_path();
        match give_back(dir) {
            Ok(0) => self.complaint.clear(),
            Ok(count) => {
                Trace::TerwayFiles.forget(&setting.root);
                let message = format!("remove {count} files from {}; no policy asks for them", dir.display());
                records.record(3, Subject::Node, NETWORK, message);
                setting.metrics.count(Metric::NodeChange, &["terway-file", "success"]);
            }
            Err(error) => {
                setting.metrics.count(Metric::NodeChange, &["terway-file", "failed"]);
                self.complain(&format!("{}: {error}", dir.display()));
            }
        }
    }

    /// Writes a file that does not hold the text already; true when it holds it. The numbers are for the audit log.
    fn write(
        &mut self,
        setting: &Setting,
        hands: &mut Hands<'_>,
        name: &str,
        text: &str,
        numbers: &dyn Display,
    ) -> bool {
        let dir = setting.terway_dir.as_path();
        let path = dir.join(name);
        if fs::read_to_string(&path).is_ok_and(|present| present == text) {
            return true;
        }
        Trace::TerwayFiles.leave(&setting.root);
        match fs::create_dir_all(dir).and_then(|()| fs::write(&path, text)) {
            Ok(()) => {
                let message = format!("update {name}; {numbers}");
                hands.applier.records().record(3, Subject::Node, NETWORK, message);
                setting.metrics.count(Metric::NodeChange, &["terway-file", "success"]);
                true
            }
            Err(error) => {
                setting.metrics.count(Metric::NodeChange, &["terway-file", "failed"]);
                self.complain(&format!("{}: {error}", path.display()));
                false
            }
        }
    }

    fn complain(&mut self, complaint: &str) {
        if self.complaint != complaint {
            tracing::warn!(complaint, "terway's files are not as they should be");
            complaint.clone_into(&mut self.complaint);
        }
    }
}
