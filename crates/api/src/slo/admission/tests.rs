use super::*;

const THRESHOLD: &str = key::RESOURCE_THRESHOLD;
const QOS: &str = key::RESOURCE_QOS;
const SYSTEM: &str = key::SYSTEM;
const BURST: &str = key::CPU_BURST;
const COLOCATION: &str = key::COLOCATION;
const BANDWIDTH_600M: (&str, &str) = (SYSTEM, r#"{"clusterStrategy":{"totalNetworkBandwidth":"600M"}}"#);

fn map(entries: &[(&str, &str)]) -> Data {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The answer to creating a ConfigMap with these documents; empty when admitted.
fn create(documents: &[(&str, &str)]) -> String {
    answer(admit(None, &map(documents), &[], &Options::default()))
}

fn update(old: &[(&str, &str)], new: &[(&str, &str)]) -> String {
    answer(admit(Some(&map(old)), &map(new), &[], &Options::default()))
}

fn answer(result: Result<(), AdmissionError>) -> String {
    match result {
        Ok(()) => String::new(),
        Err(error) => {
            assert_eq!(error.code, 400);
            error.text
        }
    }
}

/// The text of a range fault at these paths.
fn faults(faults: &[(&str, &str)]) -> String {
    let members: Vec<_> = faults.iter().map(|(path, text)| format!(r#""{path}":"{text}""#)).collect();
    format!(r#"___{{"reason":"ConfigParamInvalid","message":{{{}}}}}___"#, members.join(","))
}

fn cluster(members: &str) -> String {
    format!(r#"{{"clusterStrategy":{{{members}}}}}"#)
}

fn items(selectors: &[&str]) -> String {
    let items: Vec<_> = selectors
        .iter()
        .enumerate()
        .map(|(index, selector)| format!(r#"{{"name":"s{index}","nodeSelector":{selector}}}"#))
        .collect();
    format!(r#"{{"nodeStrategies":[{}]}}"#, items.join(","))
}

#[test]
fn colocation_ranges() {
    let diff = "ColocationCfg.ColocationStrategy.ResourceDiffThreshold";
    for (name, document, want) in [
        (
            "api#10.73",
            r#"{"resourceDiffThreshold":1.5}"#,
            r#"___{"reason":"ConfigParamInvalid","message":{"ColocationCfg.ColocationStrategy.ResourceDiffThreshold":"ResourceDiffThreshold must be 1 or less"}}___"#.to_owned(),
        ),
        (
            "api#10.169 zero",
            r#"{"resourceDiffThreshold":0}"#,
            faults(&[(diff, "ResourceDiffThreshold must be greater than 0")]),
        ),
        ("api#10.169 one", r#"{"resourceDiffThreshold":1}"#, String::new()),
        (
            "api#10.170",
            r#"{"metricReportIntervalSeconds":0,"degradeTimeMinutes":0}"#,
            faults(&[
                ("ColocationCfg.ColocationStrategy.DegradeTimeMinutes", "DegradeTimeMinutes must be 1 or greater"),
                (
                    "ColocationCfg.ColocationStrategy.MetricReportIntervalSeconds",
                    "MetricReportIntervalSeconds must be 1 or greater",
                ),
            ]),
        ),
        (
            "cluster and item at once",
            r#"{"midCPUThresholdPercent":101,"nodeConfigs":[{"nodeSelector":{"matchLabels":{"a":"b"}},"cpuReclaimThresholdPercent":-1}]}"#,
            faults(&[
                ("ColocationCfg.ColocationStrategy.MidCPUThresholdPercent", "MidCPUThresholdPercent must be 100 or less"),
                (
                    "ColocationCfg.NodeConfigs[0].ColocationStrategy.CPUReclaimThresholdPercent",
                    "CPUReclaimThresholdPercent must be 0 or greater",
                ),
            ]),
        ),
    ] {
        assert_eq!(create(&[(COLOCATION, document)]), want, "{name}");
    }
}

#[test]
fn only_changed_keys_are_checked() {
    assert_eq!(update(&[(COLOCATION, "{")], &[(COLOCATION, "{")]), "", "api#10.171 unchanged");
    assert_eq!(create(&[(COLOCATION, "")]), "", "api#10.171 empty");
    assert_eq!(create(&[(key::HOST_APPLICATION, "{")]), "", "api#10.171 another key");
    let sum_110 = network(r#""ingressRequest":60"#, r#""ingressRequest":50"#);
    let answer = update(&[(QOS, &sum_110)], &[(QOS, &sum_110), BANDWIDTH_600M]);
    assert_eq!(answer, "", "api#10.186");
    for key in [COLOCATION, THRESHOLD, QOS, SYSTEM, BURST] {
        assert_eq!(create(&[(key, "null")]), "", "api#10.187 {key}");
    }
}

#[test]
fn documents_that_cannot_be_read() {
    let all = [(THRESHOLD, "{"), (QOS, "{"), (SYSTEM, "{"), (BURST, "{")];
    let failed = |subject: &str| {
        format!(
            r#"___{{"reason":"ParseConfigFail","message":"Failed to parse {subject} config in configmap koordinator-system/slo-controller-config, err: unexpected end of JSON input"}}___"#
        )
    };
    assert_eq!(create(&all), failed("resourceThreshold"), "api#10.172");
    assert_eq!(create(&[(COLOCATION, "{"), (BURST, "{")]), failed("colocation"));
    assert_eq!(create(&all[1..]), failed("ResourceQOS"));
    assert_eq!(create(&all[2..]), failed("System"));
    assert_eq!(create(&all[3..]), failed("CpuBurst"));
    assert_eq!(create(&[(QOS, "{}"), (SYSTEM, "{")]), failed("System"));
}

#[test]
fn selectors_of_items() {
    let empty = r#"___{"reason":"ConfigParamInvalid","message":"nodeConfigs NodeSelector must not empty error! configType: resource-threshold-config,nodeConfig name:x"}___"#;
    for item in [r#"{"name":"x"}"#, r#"{"name":"x","nodeSelector":{}}"#] {
        let document = format!(r#"{{"nodeStrategies":[{item}]}}"#);
        assert_eq!(create(&[(THRESHOLD, &document)]), empty, "api#10.173 {item}");
    }
    let bogus = items(&[
        r#"{"matchLabels":{"b":"2","a":"1"},"matchExpressions":[{"key":"a","operator":"Bogus","values":["x","y"]}]}"#,
    ]);
    let answer = create(&[(THRESHOLD, &bogus)]);
    let start = r#"___{"reason":"ConfigParamInvalid","message":"failed to parse node selector \u0026LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:a,Operator:Bogus,Values:[x y],},},},configType"#;
    assert!(answer.starts_with(start), "{answer}");
    assert!(answer.contains(r#",configType: resource-threshold-config,nodeConfig name:s0, err: \"Bogus\" is not a valid label selector operator"#), "{answer}");
}

#[test]
fn items_that_overlap() {
    let overlap = r#"___{"reason":"NodeStrategiesOverlap","message":{"config":"resource-threshold-config","strategies":["s0","s1"]}}___"#;
    let value_in =
        |values: &str| format!(r#"{{"matchExpressions":[{{"key":"k","operator":"In","values":{values}}}]}}"#);
    let not_in = r#"{"matchExpressions":[{"key":"k","operator":"NotIn","values":["1"]}]}"#;
    let exists = r#"{"matchExpressions":[{"key":"k","operator":"Exists"}]}"#;
    let label = |key: &str, value: &str| format!(r#"{{"matchLabels":{{"{key}":"{value}"}}}}"#);
    let both = r#"{"matchLabels":{"aa":"t","bb":"t"}}"#.to_owned();
    for (name, first, second, want) in [
        ("api#10.74", label("aa", "t"), both, overlap),
        ("api#10.174 In", value_in(r#"["1","2"]"#), value_in(r#"["2","3"]"#), overlap),
        ("api#10.174 Exists", exists.to_owned(), label("k", "1"), overlap),
        ("api#10.174 NotIn", not_in.to_owned(), label("z", "1"), overlap),
        ("nothing in common", label("aa", "t"), label("bb", "t"), ""),
        ("other values", value_in(r#"["1","2"]"#), value_in(r#"["3","4"]"#), ""),
    ] {
        assert_eq!(create(&[(THRESHOLD, &items(&[&first, &second]))]), want, "{name}");
    }
}

#[test]
fn nodes_matched_twice() {
    let document = items(&[r#"{"matchLabels":{"aa":"t"}}"#, r#"{"matchLabels":{"bb":"t"}}"#]);
    let data = map(&[(THRESHOLD, &document)]);
    let (one, two) = (map(&[("aa", "t")]), map(&[("aa", "t"), ("bb", "t")]));
    let conflict = r#"___{"reason":"ExistNodeConfict","message":{"config":"resource-threshold-config","strategies":["s0","s1"],"exampleNodes":["n1"]}}___"#;
    let n0 = NodeLabels { name: "n0", labels: &one };
    let n1 = NodeLabels { name: "n1", labels: &two };
    let options = Options::default();
    assert_eq!(answer(admit(None, &data, &[n0, n1], &options)), conflict, "api#10.75");
    assert_eq!(answer(admit(None, &data, &[n0], &options)), "", "api#10.75 without such a node");
    assert_eq!(answer(admit_node(&data, n1)), conflict);
    assert_eq!(answer(admit_node(&data, n0)), "");
    assert_eq!(answer(admit_node(&map(&[(THRESHOLD, "{")]), n1)), "", "unreadable documents are left alone");
    let unusable = [
        ("an empty selector", "{}"),
        ("an unreadable one", r#"{"matchExpressions":[{"key":"aa","operator":"Odd"}]}"#),
    ];
    for (name, selector) in unusable {
        let document = items(&[r#"{"matchLabels":{"aa":"t"}}"#, selector, r#"{"matchLabels":{"bb":"t"}}"#]);
        assert_eq!(answer(admit_node(&map(&[(THRESHOLD, &document)]), n1)), "", "{name}: the whole document");
    }
}

#[test]
fn names_when_required() {
    let options = Options { names_required: true, ..Options::default() };
    let item =
        |name: &str, value: &str| format!(r#"{{{name}"nodeSelector":{{"matchLabels":{{"a":"{value}"}}}}}}"#);
    let name = r#""name":"x","#;
    for (items, want) in [
        (
            [item(name, "1"), item(name, "2")],
            r#"___{"reason":"ConfigParamInvalid","message":"nodeConfig Name confilict, configType:cpu-burst-config,nodeConfig Name:x! "}___"#,
        ),
        (
            [item(name, "1"), item("", "2")],
            r#"___{"reason":"ConfigParamInvalid","message":"nodeConfig Name need! configType:cpu-burst-config"}___"#,
        ),
        ([item(name, "1"), item(r#""name":"y","#, "2")], ""),
    ] {
        let data = map(&[(BURST, &format!(r#"{{"nodeStrategies":[{}]}}"#, items.join(",")))]);
        assert_eq!(answer(admit(None, &data, &[], &options)), want);
    }
}

#[test]
fn threshold_ranges() {
    let path = |field: &str| format!("ResourceThresholdCfg.ClusterStrategy.{field}");
    let memory = (path("MemoryEvictThresholdPercent"), path("MemoryEvictLowerPercent"));
    let memory_pair = faults(&[
        (&memory.1, "MemoryEvictLowerPercent must be less than MemoryEvictThresholdPercent"),
        (&memory.0, "MemoryEvictThresholdPercent must be greater than MemoryEvictLowerPercent"),
    ]);
    let priority = path("AllocatableEvictPriorityThreshold");
    for (name, members, want) in [
        // Differs: upstream refuses the half alone (api 11, item 3).
        ("api#10.76", r#""cpuEvictBESatisfactionLowerPercent":35"#, String::new()),
        (
            "api#10.175 8000",
            r#""allocatableEvictPriorityThreshold":8000"#,
            faults(&[(&priority, "AllocatableEvictPriorityThreshold must be 7,999 or less")]),
        ),
        ("api#10.175 7999", r#""allocatableEvictPriorityThreshold":7999"#, String::new()),
        (
            "api#10.175 -1",
            r#""allocatableEvictPriorityThreshold":-1"#,
            faults(&[(&priority, "AllocatableEvictPriorityThreshold must be 0 or greater")]),
        ),
        // Differs: upstream refuses the half alone (api 11, item 3).
        ("api#10.176 alone", r#""memoryEvictThresholdPercent":80"#, String::new()),
        (
            "api#10.176 pair",
            r#""memoryEvictThresholdPercent":80,"memoryEvictLowerPercent":75"#,
            String::new(),
        ),
        ("api#10.176 equal", r#""memoryEvictThresholdPercent":75,"memoryEvictLowerPercent":75"#, memory_pair),
        (
            "lower above the default threshold",
            r#""memoryEvictLowerPercent":71"#,
            faults(&[(&memory.1, "MemoryEvictLowerPercent must be less than MemoryEvictThresholdPercent")]),
        ),
        (
            "below the default lower",
            r#""memoryAllocatableEvictThresholdPercent":100"#,
            faults(&[(
                &path("MemoryAllocatableEvictThresholdPercent"),
                "MemoryAllocatableEvictThresholdPercent must be greater than MemoryAllocatableEvictLowerPercent",
            )]),
        ),
        (
            "one fault for a field",
            r#""cpuEvictThresholdPercent":-1,"cpuEvictLowerPercent":50,"cpuEvictTimeWindowSeconds":0"#,
            faults(&[
                (
                    &path("CPUEvictLowerPercent"),
                    "CPUEvictLowerPercent must be less than CPUEvictThresholdPercent",
                ),
                (&path("CPUEvictThresholdPercent"), "CPUEvictThresholdPercent must be 0 or greater"),
                (&path("CPUEvictTimeWindowSeconds"), "CPUEvictTimeWindowSeconds must be greater than 0"),
            ]),
        ),
        ("api#10.181 policy", r#""cpuSuppressPolicy":"weird""#, String::new()),
    ] {
        assert_eq!(create(&[(THRESHOLD, &cluster(members))]), want, "{name}");
    }
    let document = r#"{"clusterStrategy":{"memoryEvictThresholdPercent":80,"memoryEvictLowerPercent":75},"nodeStrategies":[{"nodeSelector":{"matchLabels":{"a":"b"}},"memoryEvictThresholdPercent":70}]}"#;
    let want = faults(&[(
        "ResourceThresholdCfg.NodeStrategies[0].ResourceThresholdStrategy.MemoryEvictThresholdPercent",
        "MemoryEvictThresholdPercent must be greater than MemoryEvictLowerPercent",
    )]);
    assert_eq!(create(&[(THRESHOLD, document)]), want, "api#10.177");
    assert_eq!(create(&[(THRESHOLD, &document.replace(":70}", ":76}"))]), "", "above the merged lower");
}

#[test]
fn qos_ranges() {
    let be = |members: &str| format!(r#"{{"clusterStrategy":{{"beClass":{{{members}}}}}}}"#);
    let path = |field: &str| format!("ResourceQOSCfg.ClusterStrategy.BEClass.{field}");
    let end = path("ResctrlQOS.ResctrlQOS.CATRangeEndPercent");
    let start = path("ResctrlQOS.ResctrlQOS.CATRangeStartPercent");
    for (name, members, want) in [
        // Differs: upstream refuses one end alone.
        ("api#10.178 alone", r#""resctrlQOS":{"catRangeEndPercent":30}"#, String::new()),
        (
            "api#10.178 equal",
            r#""resctrlQOS":{"catRangeStartPercent":30,"catRangeEndPercent":30}"#,
            faults(&[
                (&end, "CATRangeEndPercent must be greater than CATRangeStartPercent"),
                (&start, "CATRangeStartPercent must be less than CATRangeEndPercent"),
            ]),
        ),
        (
            "start above the default end of the class",
            r#""resctrlQOS":{"catRangeStartPercent":40}"#,
            faults(&[(&start, "CATRangeStartPercent must be less than CATRangeEndPercent")]),
        ),
        (
            "every part",
            r#""cpuQOS":{"groupIdentity":3},"memoryQOS":{"wmarkScalePermill":1001,"wmarkMinAdj":-26,"oomKillGroup":2},"resctrlQOS":{"mbaPercent":101}"#,
            faults(&[
                (&path("CPUQOS.CPUQOS.GroupIdentity"), "GroupIdentity must be 2 or less"),
                (&path("MemoryQOS.MemoryQOS.OomKillGroup"), "OomKillGroup must be 1 or less"),
                (&path("MemoryQOS.MemoryQOS.WmarkMinAdj"), "WmarkMinAdj must be -25 or greater"),
                (&path("MemoryQOS.MemoryQOS.WmarkScalePermill"), "WmarkScalePermill must be 1,000 or less"),
                (&path("ResctrlQOS.ResctrlQOS.MBAPercent"), "MBAPercent must be 100 or less"),
            ]),
        ),
        (
            "api#10.181 blkio",
            r#""blkioQOS":{"blocks":[{"name":"a","ioCfg":{"ioWeightPercent":0,"readIOPS":-1}}]}"#,
            String::new(),
        ),
    ] {
        assert_eq!(create(&[(QOS, &be(members))]), want, "{name}");
    }
    let item = r#"{"nodeStrategies":[{"nodeSelector":{"matchLabels":{"a":"b"}},"lsClass":{"cpuQOS":{"schedIdle":-1}}}]}"#;
    let want = faults(&[(
        "ResourceQOSCfg.NodeStrategies[0].ResourceQOSStrategy.LSClass.CPUQOS.CPUQOS.SchedIdle",
        "SchedIdle must be 0 or greater",
    )]);
    assert_eq!(create(&[(QOS, item)]), want);
}

#[test]
fn burst_and_system_ranges() {
    let members = r#""cpuBurstPercent":0,"cfsQuotaBurstPercent":99,"cfsQuotaBurstPeriodSeconds":-2,"sharePoolThresholdPercent":101"#;
    let config = "CPUBurstCfg.ClusterStrategy.CPUBurstConfig";
    let want = faults(&[
        (&format!("{config}.CFSQuotaBurstPercent"), "CFSQuotaBurstPercent must be 100 or greater"),
        (&format!("{config}.CFSQuotaBurstPeriodSeconds"), "CFSQuotaBurstPeriodSeconds must be -1 or greater"),
        (&format!("{config}.CPUBurstPercent"), "CPUBurstPercent must be 1 or greater"),
        (
            "CPUBurstCfg.ClusterStrategy.SharePoolThresholdPercent",
            "SharePoolThresholdPercent must be 100 or less",
        ),
    ]);
    assert_eq!(create(&[(BURST, &cluster(members))]), want, "api#10.179");
    assert_eq!(create(&[(BURST, &cluster(r#""policy":"x""#))]), "", "api#10.181 burst policy");
    let burst = cluster(r#""cpuBurstPercent":10001"#);
    let want = faults(&[(&format!("{config}.CPUBurstPercent"), "CPUBurstPercent must be 10,000 or less")]);
    assert_eq!(create(&[(BURST, &burst)]), want);

    let path = "SystemCfg.ClusterStrategy.WatermarkScaleFactor";
    for (value, want) in [
        (0, faults(&[(path, "WatermarkScaleFactor must be greater than 0")])),
        (401, faults(&[(path, "WatermarkScaleFactor must be 400 or less")])),
        (400, String::new()),
    ] {
        let document = cluster(&format!(r#""watermarkScaleFactor":{value}"#));
        assert_eq!(create(&[(SYSTEM, &document)]), want, "api#10.180 {value}");
    }
    let document = r#"{"nodeStrategies":[{"nodeSelector":{"matchLabels":{"a":"b"}},"minFreeKbytesFactor":0,"memcgReapBackGround":2}]}"#;
    let path = "SystemCfg.NodeStrategies[0].SystemStrategy";
    let want = faults(&[
        (&format!("{path}.MemcgReapBackGround"), "MemcgReapBackGround must be 1 or less"),
        (&format!("{path}.MinFreeKbytesFactor"), "MinFreeKbytesFactor must be greater than 0"),
    ]);
    assert_eq!(create(&[(SYSTEM, document)]), want);
}

/// networkQOS of LS and BE in the cluster strategy.
fn network(ls: &str, be: &str) -> String {
    cluster(&format!(r#""lsClass":{{"networkQOS":{{{ls}}}}},"beClass":{{"networkQOS":{{{be}}}}}"#))
}

#[test]
fn network_of_the_cluster() {
    let over = "ClusterStrategy total net bandwidth percentage already over 100";
    let sums = |ls: &str, be: &str| {
        network(&format!(r#""ingressRequest":{ls}"#), &format!(r#""ingressRequest":{be}"#))
    };
    let bad_101 = "ResourceQOSCfg.ClusterStrategy.LSClass.IngressRequest: Invalid value: 101: must be percentage value just in 0-100'";
    let nothing = (SYSTEM, r#"{"clusterStrategy":{}}"#);
    for (name, document, system, want) in [
        ("api#10.77", sums("60", "50"), Some(BANDWIDTH_600M), over),
        (
            "api#10.78",
            sums(r#""50M""#, "10"),
            Some(BANDWIDTH_600M),
            "only one type can be used for percentages or quantity in clusterStrategy",
        ),
        ("api#10.79", network(r#""ingressRequest":101"#, ""), Some(BANDWIDTH_600M), bad_101),
        // Differs: upstream refuses the next four (api 11, items 1 and 2).
        ("api#10.182", sums("60", "40"), None, ""),
        ("api#10.183 nothing", sums("60", "40"), Some((SYSTEM, "{}")), ""),
        ("api#10.183 empty strategy", sums("60", "40"), Some(nothing), ""),
        ("api#10.184", sums(r#""50M""#, r#""10M""#), Some(BANDWIDTH_600M), ""),
        ("api#10.185 off", network(r#""enable":false,"ingressRequest":101"#, ""), None, bad_101),
        ("api#10.185 system", cluster(r#""systemClass":{"networkQOS":{"ingressRequest":200}}"#), None, ""),
        ("percent without system-config", sums("60", "50"), None, over),
        (
            "quantities over the total",
            sums(r#""550M""#, r#""51M""#),
            Some(BANDWIDTH_600M),
            "total net bandwidth over total network bandwidth in clusterStrategy",
        ),
        ("directions apart", network(r#""ingressRequest":60"#, r#""egressRequest":60"#), None, ""),
        (
            "no quantity",
            network("", r#""egressLimit":"5X""#),
            None,
            r#"ResourceQOSCfg.ClusterStrategy.BEClass.EgressLimit: Invalid value: "5X": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#,
        ),
    ] {
        let mut documents = vec![(QOS, document.as_str())];
        documents.extend(system);
        assert_eq!(create(&documents), want, "{name}");
    }
}

#[test]
fn network_of_node_items() {
    let item = |requests: &str| {
        format!(r#"{{"nodeStrategies":[{{"nodeSelector":{{"matchLabels":{{"a":"b"}}}},{requests}}}]}}"#)
    };
    let ls = |requests: &str| item(&format!(r#""lsClass":{{"networkQOS":{{{requests}}}}}"#));
    let system_item = |label: &str, members: &str| {
        format!(
            r#"{{"clusterStrategy":{{"totalNetworkBandwidth":"100M"}},"nodeStrategies":[{{"nodeSelector":{{"matchLabels":{{"{label}":"b"}}}}{members}}}]}}"#
        )
    };
    let over = "total net bandwidth quantity already over total network bandwidth in cfg.NodeStrategies[0]";
    let two_hundred = r#","totalNetworkBandwidth":"200M""#;
    let request_150 = ls(r#""ingressRequest":"150M""#);
    for (document, system, want) in [
        (
            ls(r#""ingressRequest":101"#),
            "{}".to_owned(),
            "ResourceQOSCfg.nodeStrategy.0.LSClass.IngressRequest: Invalid value: 101: must be percentage value just in 0-100'",
        ),
        (
            ls(r#""ingressRequest":1,"egressRequest":"1M""#),
            "{}".to_owned(),
            "only one type can be used for percentages or quantity in nodeStrategy[0]",
        ),
        (
            item(
                r#""lsClass":{"networkQOS":{"ingressRequest":60}},"lsrClass":{"networkQOS":{"ingressRequest":41}}"#,
            ),
            "{}".to_owned(),
            "cfg.NodeStrategies[0] total net bandwidth percentage already over 100",
        ),
        (request_150.clone(), cluster(r#""totalNetworkBandwidth":"100M""#), over),
        (request_150.clone(), system_item("a", two_hundred), ""),
        (request_150.clone(), system_item("a", ""), over),
        (request_150, system_item("other", two_hundred), ""),
    ] {
        assert_eq!(create(&[(QOS, &document), (SYSTEM, &system)]), want, "{document} {system}");
    }
}

#[test]
fn virtual_nodes_have_a_limit() {
    let values: Vec<_> = (0..50).map(|value| format!(r#""{value}""#)).collect();
    let expressions: Vec<_> = (0..12)
        .map(|key| format!(r#"{{"key":"k{key}","operator":"In","values":[{}]}}"#, values.join(",")))
        .collect();
    let selector = format!(r#"{{"matchExpressions":[{}]}}"#, expressions.join(","));
    let other = r#"{"matchLabels":{"z":"1"}}"#;
    assert_eq!(create(&[(THRESHOLD, &items(&[&selector, other]))]), "");
}
