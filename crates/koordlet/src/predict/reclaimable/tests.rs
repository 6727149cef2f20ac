//! The worked examples of prod reclaimable.

use std::collections::BTreeMap;

use super::*;
use crate::predict::models::{NotFound, Peaks, Predictor, Sample, Training};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const HOUR_MS: i64 = 3_600_000;
/// 2026-01-01 00:00 UTC.
const NOW: i64 = 1_767_225_600_000;

fn of(cpu_milli: i64, memory: i64) -> Amount {
    Amount { cpu_milli, memory }
}

fn pod(name: &str, request: Amount) -> Candidate {
    Candidate {
        uid: name.into(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        class: Some(PriorityClass::Prod),
        created_ms: NOW - 48 * HOUR_MS,
        is_leaving: false,
        request,
    }
}

/// Exactly these peaks: whole histograms would only approximate the examples' numbers.
struct Known {
    settings: Settings,
    peaks: BTreeMap<&'static str, Amount>,
    idle: &'static str,
}

impl History for Known {
    fn peaks(&self, key: &str) -> Result<Peaks, NotFound> {
        let peak = *self.peaks.get(key).ok_or_else(|| NotFound(key.to_owned()))?;
        Ok(Peaks { p95: peak, p98: peak, ..Peaks::default() })
    }

    fn is_idle(&self, key: &str) -> bool {
        key == self.idle
    }
}

impl Known {
    fn predict(&self, pods: &[Candidate], allocatable: Option<Amount>) -> Prediction {
        predict(self, &self.settings, pods, allocatable, NOW)
    }
}

fn knowing(safety_margin_percent: i64, peaks: &[(&'static str, Amount)]) -> Known {
    let settings = Settings { safety_margin_percent, ..Settings::default() };
    Known { settings, peaks: peaks.iter().copied().collect(), idle: "" }
}

fn system(margin: i64, sys: Amount, prod: Amount, none: Amount, pods: &[(&'static str, Amount)]) -> Known {
    let mut all = vec![(SYSTEM, sys), ("__node-koord-prod__", prod), ("__node-__", none)];
    all.extend(pods);
    knowing(margin, &all)
}

#[test]
fn by_pod() {
    let predictor = knowing(10, &[("web", of(1000, 768 * MIB))]);
    let web = pod("web", of(2000, 2 * GIB));
    let result = |pod: &Candidate, node: Amount| {
        predictor.predict(std::slice::from_ref(pod), Some(node)).reclaimable.by_pod.unwrap()
    };
    // koordlet-observe#13.7.G7
    assert_eq!(result(&web, of(3000, 3 * GIB)), of(900, 1_261_646_644));
    // koordlet-observe#13.7.G30
    assert_eq!(result(&web, of(1000, 3 * GIB)), of(0, 1_261_646_644));
    // koordlet-observe#13.7.G8
    let young = Candidate { created_ms: NOW - HOUR_MS, ..web.clone() };
    assert_eq!(result(&young, of(3000, 3 * GIB)), of(0, 0));
    let batch = Candidate { class: Some(PriorityClass::Batch), ..web };
    assert_eq!(result(&batch, of(3000, 3 * GIB)), of(0, 0));
}

#[test]
fn a_pod_counts_once() {
    // koordlet-observe#13.7.G31
    let predictor = knowing(10, &[("web", of(1000, 768 * MIB))]);
    let web = pod("web", of(2000, 2 * GIB));
    let prediction = predictor.predict(&[web.clone(), web], Some(of(3000, 3 * GIB)));
    assert_eq!(prediction.reclaimable.by_pod, Ok(of(900, 1_261_646_644)));
    assert_eq!(
        prediction.refused,
        [
            "failed to add pod (default/web) to podReclaimablePredictor. error: pod default/web already exist in the \
             pod reclaimable predictor"
        ]
    );
}

#[test]
fn by_class() {
    let predictor = system(0, of(200, 256 * MIB), of(600, GIB), of(0, 0), &[]);
    let pods = [pod("a", of(1500, 3 * GIB))];
    let result = |node: Amount| predictor.predict(&pods, Some(node)).reclaimable.by_class.unwrap();
    // koordlet-observe#13.7.G9
    assert_eq!(result(of(4000, 8 * GIB)), of(700, 1792 * MIB));
    // koordlet-observe#13.7.G10
    assert_eq!(result(of(1000, GIB)), of(200, 0));
    // koordlet-observe#13.7.G16
    let mut predictor = system(10, of(200, 256 * MIB), of(1000, GIB), of(25, 5 * MIB), &[]);
    predictor.idle = "__node-__";
    let peak = |predictor: &Known, pods: &[Candidate]| predictor.predict(pods, None).peak.by_class;
    let upstreams = of(1347, 1_482_162_176);
    assert_eq!(peak(&predictor, &[]), Ok(of(1320, 1_476_395_008)), "Do better 12: nobody is in the class");
    let classless = Candidate { class: None, ..pod("x", of(0, 0)) };
    assert_eq!(peak(&predictor, &[classless]), Ok(upstreams), "somebody is");
    predictor.idle = "";
    assert_eq!(peak(&predictor, &[]), Ok(upstreams), "somebody was");
}

#[test]
fn a_class_without_pods_needs_nothing() {
    let settings = Settings { safety_margin_percent: 0, ..Settings::default() };
    let mut predictor = Predictor::new(settings.clone());
    predictor.train(&Training { pods: Vec::new(), node: Some(Sample::default()) }, NOW);
    let peak = |pods: &[Candidate]| predict(&predictor, &settings, pods, None, NOW).peak.by_class;
    // The system always counts, be it with its first bucket.
    assert_eq!(peak(&[]), Ok(of(25, 5 * MIB)));
    let prod = pod("web", of(0, 0));
    let classless = Candidate { class: None, ..pod("x", of(0, 0)) };
    assert_eq!(peak(std::slice::from_ref(&classless)), Ok(of(50, 10 * MIB)));
    assert_eq!(peak(std::slice::from_ref(&prod)), Ok(of(50, 10 * MIB)));
    assert_eq!(peak(&[prod, classless]), Ok(of(75, 15 * MIB)));
}

#[test]
fn the_more_careful_view_counts() {
    // koordlet-observe#13.7.G11
    let outcome = Outcome::of("result", Ok(of(900, GIB)), Ok(of(200, 2 * GIB)), Amount::min);
    assert_eq!(outcome.total, Ok(of(200, GIB)));
    let outcome = Outcome::of("peak", Ok(of(900, GIB)), Ok(of(200, 2 * GIB)), Amount::max);
    assert_eq!(outcome.total, Ok(of(900, 2 * GIB)));
}

#[test]
fn pods_without_history_need_what_they_ask_for() {
    let none = of(0, 0);
    let predictor = system(10, none, none, none, &[("old", of(400, 600 * MIB))]);
    let pods = [
        pod("old", of(1000, GIB)),
        Candidate { created_ms: NOW, ..pod("cold", of(1500, 2 * GIB)) },
        pod("unknown", of(250, 256 * MIB)),
    ];
    let prediction = predictor.predict(&pods, Some(of(100_000, 100 * GIB)));
    // koordlet-observe#13.7.G12
    assert_eq!(prediction.peak.by_pod, Ok(of(2190, 3_107_979_264)));
    // koordlet-observe#13.7.G32, with the pod without a model counted in its class as it should be.
    assert_eq!(ByClass::count(&pods).request, of(2750, 3 * GIB + 256 * MIB));
    // koordlet-observe#13.7.G33
    let leaving = Candidate { is_leaving: true, ..pod("old", of(3000, 3 * GIB)) };
    let young = Candidate { created_ms: NOW, ..leaving.clone() };
    assert_eq!(predictor.predict(&[leaving], None).peak.by_pod, Ok(none));
    assert_eq!(predictor.predict(&[young], None).peak.by_pod, Ok(of(3000, 3 * GIB)));
}

#[test]
fn amplified_nodes_count_as_they_are() {
    use crate::decide::sketch::node;
    use crate::state::NodeState;
    let predictor = knowing(10, &[("a", of(400, 600 * MIB))]);
    let pods = [pod("a", of(3000, 3 * GIB))];
    let key = koord_api::keys::node::annotation::RAW_ALLOCATABLE;
    // koordlet-observe#13.7.G34
    for (text, want) in [
        (r#"{"cpu":"1","memory":"1Gi"}"#, of(560, 381_681_664)),
        ("{", of(2560, 2_529_165_312)),
        (r#"{"cpu":"1"}"#, of(560, 0)),
    ] {
        let size = [("cpu", "4"), ("memory", "8Gi")];
        let object = node(&size, &size).annotated(key, text);
        let allocatable = amount(&NodeState::read(object.object()).raw_allocatable());
        let prediction = predictor.predict(&pods, Some(allocatable));
        assert_eq!(prediction.reclaimable.by_pod, Ok(want), "{text}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let none = of(0, 0);
    let predictor = system(10, none, none, none, &[]);
    let prediction = predictor.predict(&[], None);
    // koordlet-observe#13.7.G35
    assert_eq!(
        prediction.reclaimable.total,
        Err("failed to get predictor podReclaimablePredictor result, error: failed to get \
             podReclaimablePredictor result for node is nil"
            .to_owned())
    );
    assert_eq!(prediction.peak.total, Ok(none));
    let prediction = knowing(10, &[]).predict(&[], Some(none));
    assert_eq!(
        prediction.reclaimable.total,
        Err("failed to get predictor priorityReclaimablePredictor result, error: failed to get prediction of sys, \
             err: UID __node-sys__ not found in predict server"
            .to_owned())
    );
}
