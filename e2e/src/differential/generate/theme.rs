//! What a scenario is mostly about: how often each feature is drawn.

/// How many themes there are; seeds go round.
pub(super) const COUNT: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    Basic,
    Affinity,
    Spread,
    Preemption,
    Volumes,
    Workloads,
    Mixed,
}

/// Percent of pods, or of scenarios, that have a feature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chances {
    pub(super) node_selector: usize,
    pub(super) node_affinity: usize,
    pub(super) node_preference: usize,
    pub(super) tolerations: usize,
    pub(super) ports: usize,
    pub(super) widgets: usize,
    pub(super) init: usize,
    pub(super) overhead: usize,
    pub(super) pod_level: usize,
    pub(super) affinity: usize,
    pub(super) anti_affinity: usize,
    pub(super) pod_preference: usize,
    pub(super) spread: usize,
    pub(super) priority: usize,
    pub(super) gates: usize,
    pub(super) inline_volumes: usize,
    pub(super) other_namespace: usize,
    pub(super) owned: usize,
    /// Of scenarios.
    pub(super) workloads: usize,
    pub(super) claims: usize,
    pub(super) budgets: usize,
}

impl Theme {
    pub(super) fn of(seed: u64) -> Theme {
        match seed % COUNT {
            0 => Theme::Basic,
            1 => Theme::Affinity,
            2 => Theme::Spread,
            3 => Theme::Preemption,
            4 => Theme::Volumes,
            5 => Theme::Workloads,
            _ => Theme::Mixed,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Theme::Basic => "basic",
            Theme::Affinity => "affinity",
            Theme::Spread => "spread",
            Theme::Preemption => "preemption",
            Theme::Volumes => "volumes",
            Theme::Workloads => "workloads",
            Theme::Mixed => "mixed",
        }
    }

    pub(super) fn chances(self) -> Chances {
        let some = Chances {
            node_selector: 10,
            node_affinity: 12,
            node_preference: 15,
            tolerations: 35,
            ports: 10,
            widgets: 10,
            init: 12,
            overhead: 5,
            pod_level: 6,
            affinity: 0,
            anti_affinity: 0,
            pod_preference: 0,
            spread: 0,
            priority: 10,
            gates: 5,
            inline_volumes: 3,
            other_namespace: 15,
            owned: 0,
            workloads: 0,
            claims: 0,
            budgets: 0,
        };
        match self {
            Theme::Basic => Chances {
                node_selector: 20,
                node_affinity: 25,
                node_preference: 30,
                ports: 25,
                widgets: 20,
                init: 25,
                overhead: 15,
                pod_level: 15,
                ..some
            },
            Theme::Affinity => {
                Chances { affinity: 30, anti_affinity: 40, pod_preference: 50, other_namespace: 30, ..some }
            }
            Theme::Spread => Chances { spread: 85, node_affinity: 20, ..some },
            Theme::Preemption => Chances {
                priority: 90,
                budgets: 60,
                ports: 15,
                anti_affinity: 12,
                affinity: 5,
                spread: 10,
                other_namespace: 5,
                ..some
            },
            Theme::Volumes => {
                Chances { claims: 100, inline_volumes: 15, ports: 3, other_namespace: 0, ..some }
            }
            Theme::Workloads => Chances { workloads: 100, owned: 60, spread: 8, other_namespace: 20, ..some },
            Theme::Mixed => Chances {
                affinity: 12,
                anti_affinity: 15,
                pod_preference: 25,
                spread: 30,
                priority: 40,
                inline_volumes: 8,
                owned: 20,
                workloads: 40,
                claims: 30,
                budgets: 30,
                ..some
            },
        }
    }
}
