//! One event on an object that cannot be read in part, and one line in the log, until it says something else.
//!
//! Differs: upstream passes over such things without a word, or fails every attempt with the error of one plugin.

use std::collections::HashMap;

use k8s_openapi::api::core::v1 as core;

use super::command::{Note, Subject};
use super::failure::cut;
use super::{Command, Engine};
use crate::faults;
use crate::pod::Pod;

/// Faults that are told at length; of more, how many there are.
const FAULTS_MAX: usize = 4;

/// What was said of each object: of pods by uid, of nodes by name.
pub(super) type Complaints = HashMap<Box<str>, String>;

/// No pod's uid has a space.
pub(super) fn node_key(name: &str) -> Box<str> {
    format!("node {name}").into()
}

impl Engine {
    /// Tells the owner of a pod of ours what is passed over in it.
    pub(super) fn complain_of_pod(&mut self, object: &core::Pod, pod: &Pod) {
        let faults = faults::of_pod(object);
        if faults.is_empty() {
            self.stop_complaining(&pod.uid);
        } else if let Some(profile) = self.world.profile_of(pod) {
            let scheduler = self.world.framework(profile).scheduler.clone();
            self.complain(pod.uid.clone(), &format!("pod {}", pod.key), Subject::of(pod), scheduler, &faults);
        }
    }

    /// The same for a node, in the name of the first profile.
    pub(super) fn complain_of_node(&mut self, object: &core::Node) {
        let faults = faults::of_node(object);
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let who = node_key(name);
        if faults.is_empty() {
            self.stop_complaining(&who);
            return;
        }
        let scheduler = self.world.frameworks.first().map(|first| first.scheduler.clone());
        let about = Subject::node(name, object.metadata.uid.as_deref().unwrap_or_default());
        let told = who.to_string();
        self.complain(who, &told, about, scheduler.unwrap_or_default(), &faults);
    }

    pub(super) fn stop_complaining(&mut self, who: &str) {
        self.complaints.remove(who);
    }

    fn complain(
        &mut self,
        who: Box<str>,
        told: &str,
        about: Subject,
        scheduler: Box<str>,
        faults: &[String],
    ) {
        let mut text = faults.iter().take(FAULTS_MAX).cloned().collect::<Vec<String>>().join("; ");
        if faults.len() > FAULTS_MAX {
            text.push_str(&format!("; and {} more", faults.len() - FAULTS_MAX));
        }
        if self.complaints.get(&who) == Some(&text) {
            return;
        }
        self.complaints.insert(who, text.clone());
        self.commands.push(Command::Warn(format!("{told} cannot be read in part: {text}")));
        self.commands.push(Command::Tell(Box::new(Note {
            about,
            related: None,
            scheduler,
            is_warning: true,
            reason: "Malformed",
            action: "Reading",
            note: cut(&text),
        })));
    }
}
