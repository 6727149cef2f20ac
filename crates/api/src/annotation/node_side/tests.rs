use super::*;
use crate::annotation::{Annotations, OrAbsent, read};
use crate::crd::node_slo::CpuBurstPolicy;

fn burst(percent: i64) -> CpuBurstStrategy {
    CpuBurstStrategy {
        policy: Some(CpuBurstPolicy::Auto),
        cpu_burst_percent: Some(percent),
        cfs_quota_burst_percent: Some(300),
        cfs_quota_burst_period_seconds: Some(-1),
        share_pool_threshold_percent: Some(50),
    }
}

#[test]
fn cpu_burst_over_the_node() {
    for (key, text, want) in [
        ("api#10.46", r#"{"cpuBurstPercent":500}"#, burst(500)),
        ("api#10.135", r#"{"policy":""}"#, burst(1000)),
        ("api#10.135", r#"{"cpuBurstPercent":0}"#, burst(0)),
        ("api#10.135", "", burst(1000)),
        ("the pool is the node's", r#"{"sharePoolThresholdPercent":1}"#, burst(1000)),
        ("broken", "{", burst(1000)),
    ] {
        let annotations = Annotations::from([(CPU_BURST.to_string(), text.to_string())]);
        let pod = read::<PodCpuBurst>(&annotations).or_absent(|_| ());
        let got = pod.map_or(burst(1000), |pod| pod.over(&burst(1000)));
        assert_eq!(got, want, "{key} {text:?}");
    }
    let text = r#"{"policy":"cpuBurstOnly","cpuBurstPercent":0}"#;
    assert_eq!(PodCpuBurst::parse(text).unwrap().text(), text);
}

/// Watermarks of a class as section 7.7 has them.
fn class(ratio: i64, scale: i64, min_adj: i64) -> MemoryQos {
    MemoryQos {
        min_limit_percent: Some(0),
        low_limit_percent: Some(0),
        throttling_percent: Some(0),
        wmark_ratio: Some(ratio),
        wmark_scale_permill: Some(scale),
        wmark_min_adj: Some(min_adj),
        priority_enable: Some(0),
        priority: Some(0),
        oom_kill_group: Some(0),
        ..MemoryQos::default()
    }
}

fn resolve(text: &str, class: Qos, node: &MemoryQos) -> MemoryQos {
    let annotations = Annotations::from([(MEMORY_QOS.to_string(), text.to_string())]);
    read::<PodMemoryQos>(&annotations).unwrap().unwrap().resolve(class, node)
}

#[test]
fn memory_qos_over_a_base() {
    let node = MemoryQos {
        enable: Some(true),
        wmark_ratio: Some(50),
        min_limit_percent: Some(10),
        ..MemoryQos::default()
    };
    let on = |qos: MemoryQos| MemoryQos { enable: Some(true), ..qos };
    let off = MemoryQos { enable: Some(false), ..class(0, 50, 0) };
    for (key, text, qos, want) in [
        ("api#10.44", r#"{"policy":"auto","wmarkRatio":90}"#, Qos::Ls, on(class(90, 20, -25))),
        ("api#10.45", r#"{"policy":"none"}"#, Qos::Ls, off.clone()),
        ("api#10.133 none", r#"{"policy":"none","wmarkRatio":90}"#, Qos::Ls, off),
        (
            "api#10.133 other",
            r#"{"policy":"weird","wmarkRatio":91}"#,
            Qos::Ls,
            MemoryQos { wmark_ratio: Some(91), ..node.clone() },
        ),
        ("api#10.134 BE", r#"{"policy":"auto","wmarkRatio":90}"#, Qos::Be, on(class(90, 20, 50))),
        ("api#10.134 LSE", r#"{"policy":"auto","wmarkRatio":90}"#, Qos::Lse, on(class(90, 20, -25))),
        ("api#10.134 SYSTEM", r#"{"policy":"auto","wmarkRatio":90}"#, Qos::System, on(class(90, 50, 0))),
        ("enable is the node's", r#"{"policy":"auto","enable":false}"#, Qos::Ls, on(class(95, 20, -25))),
        (
            "default",
            r#"{"policy":"default","throttlingPercent":80,"enable":false}"#,
            Qos::Ls,
            MemoryQos { throttling_percent: Some(80), ..node.clone() },
        ),
    ] {
        assert_eq!(resolve(text, qos, &node), want, "{key}");
    }
}

#[test]
fn memory_qos_text() {
    let text = r#"{"policy":"auto","wmarkRatio":90}"#;
    assert_eq!(PodMemoryQos::parse(text).unwrap().text(), text);
    let old = Annotations::from([(OLD_MEMORY_QOS.to_string(), text.to_string())]);
    assert!(read::<PodMemoryQos>(&old).unwrap().is_some());
    let mut both = old;
    both.insert(MEMORY_QOS.to_string(), String::new());
    assert_eq!(read::<PodMemoryQos>(&both).unwrap_err().key, MEMORY_QOS);
}

#[test]
fn cpu_qos() {
    let text = r#"{"enable":true,"groupIdentity":-1,"schedIdle":1,"coreExpeller":false}"#;
    assert_eq!(PodCpuQos::parse(text).unwrap().text(), text);
    for identity in [-2, 3] {
        let fault = PodCpuQos::parse(&format!(r#"{{"groupIdentity":{identity}}}"#)).unwrap_err();
        assert_eq!(fault.to_string(), format!("bad group identity value: {identity}"));
    }
}

#[test]
fn blkio_qos() {
    assert_eq!(PodBlkioQos::parse("").unwrap(), PodBlkioQos::default());
    let text = r#"{"blocks":[{"name":"vol","type":"podvolume","ioCfg":{"readIOPS":5}}]}"#;
    assert_eq!(PodBlkioQos::parse(text).unwrap().text(), text);
}

#[test]
fn resctrl() {
    assert_eq!(PodResctrl::default().text(), r#"{"llc":{"schemata":{}},"mb":{"schemata":{}}}"#);
    let text = concat!(
        r#"{"llc":{"schemata":{"percent":50,"range":[0,50]},"schemataPerCache":[{"percent":10},{"cacheID":1,"range":[0,30]}]},"#,
        r#""mb":{"schemata":{"percent":20}}}"#
    );
    assert_eq!(PodResctrl::parse(text).unwrap().text(), text);
}

#[test]
fn oom_scores() {
    assert_eq!(OomScoreAdj::parse("-1000"), Ok(OomScoreAdj(-1000)));
    for text in ["1001", "-1001", "x", "1.0"] {
        assert!(OomScoreAdj::parse(text).is_err(), "{text}");
    }
    let spec = OomScoreAdjSpec::parse(r#"{"main":-5}"#).unwrap();
    assert_eq!(oom_score_adj(Some(OomScoreAdj(7)), Some(&spec), "main"), Some(-5));
    assert_eq!(oom_score_adj(Some(OomScoreAdj(7)), Some(&spec), "side"), Some(7));
    assert_eq!(oom_score_adj(None, Some(&spec), "side"), None);
}

#[test]
fn replace_resources() {
    let parse = |text: &str| ReplaceResources::parse(text).unwrap();
    let map = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect::<BTreeMap<_, _>>()
    };
    for (key, text, replace, erase) in [
        ("api#10.30", "a/x:b/y, c/z: ,bad,q:w:e", map(&[("a/x", "b/y")]), vec!["c/z"]),
        ("api#10.117", "a:b,a:c", map(&[("a", "c")]), vec![]),
        ("api#10.117", ":", map(&[]), vec![""]),
        (
            "api#10.117",
            "cpu:kubernetes.io/batch-cpu,memory:",
            map(&[("cpu", "kubernetes.io/batch-cpu")]),
            vec!["memory"],
        ),
    ] {
        let got = parse(text);
        assert_eq!(
            (got.replace, got.erase),
            (replace, erase.into_iter().map(str::to_string).collect()),
            "{key}"
        );
    }
    assert_eq!(parse("m:,b:c , a:d").text(), "a:d,b:c,m:");
    let empty = Annotations::from([(REPLACE_RESOURCES.to_string(), String::new())]);
    assert_eq!(read::<ReplaceResources>(&empty), Ok(None));
}

#[test]
fn extended_resource_spec_text() {
    let text = r#"{"containers":{"c1":{"limits":{"kubernetes.io/batch-cpu":"1k"},"requests":{"kubernetes.io/batch-cpu":"1k"}}}}"#;
    assert_eq!(ExtendedResourceSpec::parse(text).unwrap().text(), text);
    assert_eq!(ExtendedResourceSpec::default().text(), "{}");
}
