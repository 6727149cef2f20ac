//! Verdicts of plugins: a code, the reasons with their numbers, and who said it.

use std::borrow::Cow;
use std::fmt;

use crate::time::Time;

/// A plugin's name, as configuration files and messages spell it.
pub type PluginName = &'static str;

/// What a plugin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    Success,
    /// Something went wrong that is nobody's verdict.
    Error,
    /// Not now; preemption may help.
    Unschedulable,
    /// Not now; taking other pods away would not help.
    Unresolvable,
    /// Permit only: wait.
    Wait,
    /// The plugin has nothing to say about this pod.
    Skip,
    /// Not now; an event for this plugin will say when, at once and without backoff.
    Pending,
}

impl Code {
    /// A verdict against the pod, as opposed to a failure of the scheduler.
    pub fn is_rejected(self) -> bool {
        matches!(self, Code::Unschedulable | Code::Unresolvable | Code::Pending)
    }

    /// kube-scheduler's name, which metrics have.
    pub fn word(self) -> &'static str {
        match self {
            Code::Success => "Success",
            Code::Error => "Error",
            Code::Unschedulable => "Unschedulable",
            Code::Unresolvable => "UnschedulableAndUnresolvable",
            Code::Wait => "Wait",
            Code::Skip => "Skip",
            Code::Pending => "Pending",
        }
    }
}

/// One reason, and the numbers behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The text that users and tools know.
    pub text: Cow<'static, str>,
    pub facts: Facts,
}

/// The numbers behind a reason; explanations are made of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    None,
    /// Amounts in the resource's own units (milli for cpu).
    Shortage {
        resource: Box<str>,
        wanted: i64,
        used: i64,
        allocatable: i64,
    },
    Taint {
        key: Box<str>,
        value: Box<str>,
        effect: Box<str>,
    },
    Port {
        protocol: Box<str>,
        address: Box<str>,
        port: i32,
    },
    /// A topology domain and how many pods it has, how many it may have.
    Domain {
        key: Box<str>,
        value: Box<str>,
        count: i64,
        limit: i64,
    },
    /// A node is too busy, or would be with the pod.
    Load(Box<LoadFacts>),
    /// What is known of a node's load is too old.
    OldMetric {
        measured: Option<Time>,
    },
    /// Another object is in the way.
    Object {
        kind: &'static str,
        name: Box<str>,
    },
}

/// What a node uses of one resource, in the resource's own units.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadFacts {
    pub resource: Box<str>,
    /// Percent.
    pub threshold: i64,
    /// Percent, with pods in flight and the pod itself.
    pub expected: i64,
    pub measured: Option<Time>,
    /// As measured.
    pub used: i64,
    /// What pods are expected to use beyond that, and how many they are.
    pub in_flight: i64,
    pub in_flight_pods: usize,
    /// What the pod itself is expected to use.
    pub incoming: i64,
    pub allocatable: i64,
    /// Only prod pods are counted.
    pub is_of_prod: bool,
    /// Nothing was measured: all of it is estimated.
    pub is_estimated: bool,
}

impl Reason {
    pub fn new(text: impl Into<Cow<'static, str>>) -> Reason {
        Reason { text: text.into(), facts: Facts::None }
    }

    pub fn with(text: impl Into<Cow<'static, str>>, facts: Facts) -> Reason {
        Reason { text: text.into(), facts }
    }
}

/// A verdict that is not a plain yes.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    pub code: Code,
    pub reasons: Vec<Reason>,
    /// Who said it; empty when nobody in particular did.
    pub plugin: PluginName,
}

impl Status {
    pub fn new(code: Code, plugin: PluginName, reason: Reason) -> Status {
        Status { code, reasons: vec![reason], plugin }
    }

    pub fn unschedulable(plugin: PluginName, reason: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Unschedulable, plugin, Reason::new(reason))
    }

    pub fn unresolvable(plugin: PluginName, reason: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Unresolvable, plugin, Reason::new(reason))
    }

    pub fn error(plugin: PluginName, reason: impl Into<Cow<'static, str>>) -> Status {
        Status::new(Code::Error, plugin, Reason::new(reason))
    }

    /// Whether users would read the same: numbers aside.
    pub fn reads_like(&self, other: &Status) -> bool {
        self.code == other.code
            && self.plugin == other.plugin
            && self.reasons.len() == other.reasons.len()
            && self.reasons.iter().zip(&other.reasons).all(|(a, b)| a.text == b.text)
    }

    pub fn skip() -> Status {
        Status { code: Code::Skip, reasons: Vec::new(), plugin: "" }
    }
}

/// All reasons, joined as Kubernetes does.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, reason) in self.reasons.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            f.write_str(&reason.text)?;
        }
        Ok(())
    }
}
