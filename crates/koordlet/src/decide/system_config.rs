//! Kernel settings of the whole node. Spec: koordlet-enforce 12.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use koord_api::crd::node_slo::SystemStrategy;

use super::snapshot::Node;
use super::wish::{Cause, File, Place, Value, Why, Wish};

/// What is wanted, and what the kernel would refuse.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub wishes: Vec<Wish>,
    pub refused: Vec<Refused>,
}

/// A value that is not written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    #[error("{}: value {value} is not in [min:{}, max:{}]", .file.name(), .range.start(), .range.end())]
    OutOfRange { file: File, value: i64, range: RangeInclusive<i64> },
    #[error("the kernel lists scheduler feature {0} both on and off")]
    Contradiction(String),
}

/// `features` is what the kernel's list of scheduler features says now, when it could be read.
pub fn plan(strategy: &SystemStrategy, node: &Node, features: Option<&str>) -> Plan {
    let mut plan = Plan::default();
    let memory_kib = node.memory_capacity() / 1024;
    if memory_kib <= 0 {
        return plan;
    }
    let part = |factor: i64| {
        let kib = i128::from(memory_kib) * i128::from(factor) / 10_000;
        i64::try_from(kib).unwrap_or(i64::MAX)
    };
    for (file, value, range) in [
        (File::MinFreeKbytes, strategy.min_free_kbytes_factor.map(part), 10_240..=10_485_760),
        (File::WatermarkScaleFactor, strategy.watermark_scale_factor, 10..=400),
        (File::ReapBackground, strategy.memcg_reap_back_ground, 0..=1),
        (File::PagecacheLimitEnabled, strategy.page_cache_limit_enabled, 0..=1),
        (File::SchedGroupIdentityEnabled, strategy.sched_group_identity_enabled, 0..=1),
        (File::SchedIdleSaverWmark, strategy.sched_idle_saver_wmark, i64::MIN..=i64::MAX),
    ] {
        match value {
            Some(value) if range.contains(&value) => {
                let factor = strategy.min_free_kbytes_factor.filter(|_| file == File::MinFreeKbytes);
                let why = factor.map_or(Why::Unsaid, |factor| Why::MinFree(Part { factor, memory_kib }));
                plan.wishes.push(wish(file, Value::Number(value)).because(&why));
            }
            Some(value) => plan.refused.push(Refused::OutOfRange { file, value, range }),
            None => {}
        }
    }
    switch_features(&strategy.sched_features, features.unwrap_or_default(), &mut plan);
    plan
}

/// Ten-thousandths of the node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub factor: i64,
    pub memory_kib: i64,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "minFreeKbytesFactor {} of {} KiB", self.factor, self.memory_kib)
    }
}

fn wish(file: File, value: Value) -> Wish {
    Wish::new(Place::Host, file, value, Cause::SystemConfig)
}

/// Switches scheduler features that are there and not as wanted. A list that contradicts itself is left alone.
fn switch_features(wanted: &BTreeMap<String, bool>, list: &str, plan: &mut Plan) {
    let mut now: BTreeMap<&str, bool> = BTreeMap::new();
    for word in list.split_whitespace() {
        let (name, is_on) = word.strip_prefix("NO_").map_or((word, true), |name| (name, false));
        if now.insert(name, is_on).is_some_and(|before| before != is_on) {
            plan.refused.push(Refused::Contradiction(name.to_owned()));
            return;
        }
    }
    for (name, is_wanted) in wanted {
        if now.get(name.as_str()).is_some_and(|is_on| is_on != is_wanted) {
            let word = if *is_wanted { format!("{name}\n") } else { format!("NO_{name}\n") };
            plan.wishes.push(wish(File::SchedFeatures, Value::Text(word)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::sketch::node;

    #[test]
    fn free_memory() {
        let written = |factor, memory: &str| {
            let strategy =
                SystemStrategy { min_free_kbytes_factor: Some(factor), ..SystemStrategy::default() };
            let plan = plan(&strategy, &node(&[("memory", memory)], &[]).read(), None);
            plan.wishes.iter().map(|wish| wish.value.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(written(100, "512Gi"), ["5368709"], "koordlet-enforce#18.193");
        assert_eq!(written(90, "1Gi"), Vec::<String>::new(), "koordlet-enforce#18.193");
        assert_eq!(written(300, "512Gi"), Vec::<String>::new(), "koordlet-enforce#18.193");
        assert_eq!(written(100, "0"), Vec::<String>::new());
        let strategy = SystemStrategy {
            min_free_kbytes_factor: Some(100),
            watermark_scale_factor: Some(50),
            ..SystemStrategy::default()
        };
        let plan = plan(&strategy, &node(&[("memory", "2Gi")], &[]).read(), None);
        let told: Vec<String> = plan.wishes.iter().map(|wish| wish.audit_message(None)).collect();
        let want = [
            "update min_free_kbytes to 20971; minFreeKbytesFactor 100 of 2097152 KiB",
            "update watermark_scale_factor to 50",
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn features() {
        let wanted = [("A".to_string(), true), ("B".to_string(), false), ("C".to_string(), true)].into();
        let strategy = SystemStrategy { sched_features: wanted, ..SystemStrategy::default() };
        let node = node(&[("memory", "1Gi")], &[]).read();
        let words = |list: &str| {
            let plan = plan(&strategy, &node, Some(list));
            let words: Vec<String> = plan.wishes.iter().map(|wish| wish.value.to_string()).collect();
            (words, plan.refused.len())
        };
        assert_eq!(words("NO_A B C D\n"), (vec!["A\n".to_string(), "NO_B\n".to_string()], 0));
        assert_eq!(words("A NO_B"), (vec![], 0), "C is not there");
        assert_eq!(words("A NO_A B"), (vec![], 1));
    }

    #[test]
    fn out_of_range() {
        let strategy = SystemStrategy { watermark_scale_factor: Some(5), ..SystemStrategy::default() };
        let plan = plan(&strategy, &node(&[("memory", "1Gi")], &[]).read(), None);
        let text = "watermark_scale_factor: value 5 is not in [min:10, max:400]";
        assert_eq!(plan.refused[0].to_string(), text);
    }
}
