//! What is wrong with a completed configuration, all of it, in kube-scheduler's order and words.
//!
//! Spec: scheduler-core 7.1 and 7.3, C1 to C25.

use koord_api::duration::GoDuration;
use koord_api::gate::Gates;
use koord_engine::profile::args::Args;
use koord_engine::profile::expand::{Choice, PluginSet};
use koord_engine::profile::point::Point;
use koord_kit::leader::{JITTER_FACTOR, LeaderElection};

use super::args::{Checked, family};
use super::complete::{Completed, CompletedProfile, PluginArgs, REMOVED};
use super::decode::{GivenArgs, Version};
use super::field::{Fault, Verbatim, check_name, is_extended_resource};
use super::raw::RawExtender;

/// The arguments of one profile after their checks.
#[derive(Debug, Default)]
pub(super) struct CheckedArgs {
    pub(super) args: Args,
    /// What keeps single plugins from being built. Paths start at the file.
    pub(super) unbuildable: Vec<(String, Vec<Fault>)>,
}

/// Everything that the file itself is refused for, and the arguments of each profile.
pub(super) fn check(config: &Completed, version: Version, gates: &Gates) -> (Vec<Fault>, Vec<CheckedArgs>) {
    let mut faults = Vec::new();
    let burst = config.client_connection.burst;
    if burst < 0 {
        faults.push(Fault::invalid("clientConnection.burst", burst, "must be non-negative"));
    }
    faults.extend(check_election(&config.leader_election));
    if config.parallelism <= 0 {
        let detail = "should be an integer value greater than zero";
        faults.push(Fault::invalid("parallelism", config.parallelism, detail));
    }
    let mut args = Vec::new();
    for (i, profile) in config.profiles.iter().enumerate() {
        let path = format!("profiles[{i}]");
        let (wrong, checked) = check_profile(&path, profile, version, gates);
        faults.extend(wrong);
        args.push(checked);
    }
    faults.extend(check_queue_sorts(&config.profiles));
    faults.extend(check_percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score));
    let (initial, max) = (config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds);
    if initial <= 0 {
        faults.push(Fault::invalid("podInitialBackoffSeconds", initial, "must be greater than 0"));
    }
    if max < initial {
        let detail = "must be greater than or equal to PodInitialBackoffSeconds";
        faults.push(Fault::invalid("podMaxBackoffSeconds", max, detail));
    }
    faults.extend(check_extenders(&config.extenders));
    (faults, args)
}

fn check_election(election: &LeaderElection) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !election.leader_elect {
        return faults;
    }
    let LeaderElection { lease_duration, renew_deadline, retry_period, .. } = *election;
    let path = |field: &str| format!("leaderElection.{field}");
    for (field, duration) in
        [("leaseDuration", lease_duration), ("renewDeadline", renew_deadline), ("retryPeriod", retry_period)]
    {
        if duration <= GoDuration::ZERO {
            faults.push(Fault::invalid(path(field), duration, "must be greater than zero"));
        }
    }
    if lease_duration <= renew_deadline {
        let detail = "must be greater than `RenewDeadline`";
        faults.push(Fault::invalid(path("leaseDuration"), renew_deadline, detail));
    }
    // kube-scheduler finds this only when the election starts, and stops then.
    let spread = retry_period.to_std().map(|retry| retry.mul_f64(JITTER_FACTOR));
    if let (Some(renew), Some(spread)) = (renew_deadline.to_std(), spread)
        && !spread.is_zero()
        && renew <= spread
    {
        let detail = "must be greater than retryPeriod*JitterFactor";
        faults.push(Fault::invalid(path("renewDeadline"), renew_deadline, detail));
    }
    for (field, text) in
        [("resourceNamespace", &election.resource_namespace), ("resourceName", &election.resource_name)]
    {
        if text.is_empty() {
            faults.push(Fault::required(path(field), ""));
        }
    }
    if election.resource_lock != "leases" {
        let detail = "resourceLock value must be \"leases\"";
        faults.push(Fault::invalid(path("resourceLock"), election.resource_lock.as_str(), detail));
    }
    faults
}

fn check_percentage(path: &str, percentage: i32) -> Option<Fault> {
    let is_valid = (0..=100).contains(&percentage);
    (!is_valid).then(|| Fault::invalid(path, percentage, "not in valid range [0-100]"))
}

fn check_profile(
    path: &str,
    profile: &CompletedProfile,
    version: Version,
    gates: &Gates,
) -> (Vec<Fault>, CheckedArgs) {
    let mut faults = Vec::new();
    if profile.scheduler_name.is_empty() {
        faults.push(Fault::required(format!("{path}.schedulerName"), ""));
    }
    if let Some(percentage) = profile.percentage_of_nodes_to_score {
        faults.extend(check_percentage(&format!("{path}.percentageOfNodesToScore"), percentage));
    }
    for point in Point::ALL {
        for (i, Choice { name, .. }) in profile.plugins.points[point].enabled.iter().enumerate() {
            faults.extend(removed(&format!("{path}.plugins.{}.enabled[{i}]", point.key()), name, version));
        }
    }
    let named = profile.plugins.named();
    let mut checked = CheckedArgs::default();
    for (i, PluginArgs { plugin, index, args }) in profile.args.iter().enumerate() {
        let at = match index {
            Some(index) => format!("{path}.pluginConfig[{index}]"),
            None => format!("{path}.pluginConfig"),
        };
        if profile.args[..i].iter().any(|other| other.plugin == *plugin) {
            faults.push(Fault::duplicate(&at, plugin));
        }
        faults.extend(removed(&at, plugin, version));
        let (GivenArgs::Known(args), Some(family)) = (args, family(plugin)) else { continue };
        let at = format!("{at}.args");
        match family.checked {
            Checked::WithFile => faults.extend(args.check(&at, gates, &mut checked.args)),
            // A plugin that is off is not built, so nobody looks at its arguments.
            Checked::WithPlugin if !named.contains(&plugin.as_str()) => {}
            Checked::WithPlugin => {
                let mut wrong = args.check("", gates, &mut checked.args);
                for fault in &mut wrong {
                    fault.path = format!("{at}.{}", fault.path);
                }
                if !wrong.is_empty() {
                    checked.unbuildable.push((plugin.clone(), wrong));
                }
            }
        }
    }
    (faults, checked)
}

fn removed(path: &str, plugin: &str, version: Version) -> Option<Fault> {
    let detail =
        format!("was invalid in version \"v1\" (KubeSchedulerConfiguration is version {:?})", version.text());
    REMOVED.contains(&plugin).then(|| Fault::invalid(path, plugin, &detail))
}

/// All profiles share one queue, so they must agree on how it is sorted.
fn check_queue_sorts(profiles: &[CompletedProfile]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Some((first, others)) = profiles.split_first() else { return faults };
    let canon = &first.plugins.points[Point::QueueSort];
    if canon.enabled.len() > 1 {
        let detail = "only one queue sort plugin can be enabled";
        let path = "profiles[0].plugins.queueSort.Enabled";
        faults.push(Fault::invalid(path, canon.enabled.len(), detail));
    }
    let sorter = canon.enabled.first().map_or("", |choice| choice.name.as_str());
    let args_of = |profile: &CompletedProfile| {
        profile.args.iter().find(|args| args.plugin == sorter).map(|args| match &args.args {
            GivenArgs::Known(known) => known.to_json(),
            GivenArgs::Other(value) => value.clone(),
        })
    };
    for (i, profile) in others.iter().enumerate() {
        let i = i + 1;
        let set = &profile.plugins.points[Point::QueueSort];
        if set != canon {
            let path = format!("profiles[{i}].plugins.queueSort");
            faults.push(Fault::invalid(path, shown(set), "must be the same for all profiles"));
        }
        let args = args_of(profile);
        if let Some(args) = args.filter(|args| Some(args) != args_of(first).as_ref()) {
            let path = format!("profiles[{i}].pluginConfig.args");
            faults.push(Fault::invalid(path, args, "queueSort must be the same for all profiles"));
        }
    }
    faults
}

/// A set under Go's names.
fn shown(set: &PluginSet) -> Verbatim {
    let list = |items: Vec<String>| match items.is_empty() {
        true => "null".to_owned(),
        false => format!("[{}]", items.join(",")),
    };
    let plugin = |name: &str, weight: i32| format!("{{\"Name\":{name:?},\"Weight\":{weight}}}");
    let enabled = set.enabled.iter().map(|choice| plugin(&choice.name, choice.weight)).collect();
    let disabled = set.disabled.iter().map(|name| plugin(name, 0)).collect();
    Verbatim(format!("{{\"Enabled\":{},\"Disabled\":{}}}", list(enabled), list(disabled)))
}

fn check_extenders(extenders: &[RawExtender]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut binders = 0_usize;
    let mut managed = Vec::new();
    let is_set = |verb: &Option<String>| verb.as_ref().is_some_and(|verb| !verb.is_empty());
    for (i, extender) in extenders.iter().enumerate() {
        let weight = extender.weight.unwrap_or_default();
        if is_set(&extender.prioritize_verb) && weight <= 0 {
            let path = format!("extenders[{i}].weight");
            faults.push(Fault::invalid(path, weight, "must have a positive weight applied to it"));
        }
        binders += usize::from(is_set(&extender.bind_verb));
        for (j, resource) in extender.managed_resources.iter().flatten().enumerate() {
            let path = format!("extenders[{i}].managedResources[{j}].name");
            let name = resource.name.as_str();
            let wrong = check_name(&path, name);
            if wrong.is_empty() && !is_extended_resource(name) {
                faults.push(Fault::invalid(&path, name, "is an invalid extended resource name"));
            }
            faults.extend(wrong);
            if managed.contains(&name) {
                faults.push(Fault::invalid(&path, name, "duplicate extender managed resource name"));
            }
            managed.push(name);
        }
    }
    if binders > 1 {
        let found = format!("found {binders} extenders implementing bind");
        faults.push(Fault::invalid("extenders", found.as_str(), "only one extender can implement bind"));
    }
    faults
}
