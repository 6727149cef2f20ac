use super::*;

/// `A B=5 -C` for a point: enabled, enabled with a weight, disabled.
fn set(text: &str) -> PluginSet {
    let mut set = PluginSet::default();
    for word in text.split_whitespace() {
        match (word.strip_prefix('-'), word.split_once('=')) {
            (Some(name), _) => set.disabled.push(name.to_owned()),
            (None, Some((name, weight))) => {
                set.enabled.push(Choice { name: name.to_owned(), weight: weight.parse().unwrap() });
            }
            (None, None) => set.enabled.push(Choice { name: word.to_owned(), weight: 0 }),
        }
    }
    set
}

fn sets(multi_point: &str, points: &[(Point, &str)]) -> PluginSets {
    let mut sets = PluginSets { multi_point: set(multi_point), ..PluginSets::default() };
    for (point, text) in points {
        sets.points[*point] = set(text);
    }
    sets
}

fn shown(list: &[Enabled]) -> String {
    let names: Vec<String> = list
        .iter()
        .map(|Enabled { plugin, weight }| match weight {
            1 => (*plugin).to_owned(),
            weight => format!("{plugin}={weight}"),
        })
        .collect();
    names.join(" ")
}

/// The lists after merging into the defaults, or the complaints.
fn check(custom: &PluginSets) -> Result<PerPoint<Vec<Enabled>>, Vec<String>> {
    let merged = PluginSets::defaults().merge(custom);
    merged.expand("s").map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

/// `scheduler-core#7.2`: the v1.5 chart, spread over the default list.
fn chart() -> PluginSets {
    use Point::*;
    sets(
        "",
        &[
            (QueueSort, "-* Coscheduling"),
            (PreFilter, "Reservation NodeNUMAResource DeviceShare Coscheduling ElasticQuota"),
            (Filter, "LoadAwareScheduling NodeNUMAResource DeviceShare Reservation"),
            (PostFilter, "-* Reservation Coscheduling ElasticQuota DefaultPreemption"),
            (PreScore, "Reservation"),
            (Score, "LoadAwareScheduling=1 NodeNUMAResource=1 DeviceShare=1 Reservation=5000"),
            (
                Reserve,
                "Reservation LoadAwareScheduling NodeNUMAResource DeviceShare Coscheduling ElasticQuota",
            ),
            (Permit, "Coscheduling"),
            (PreBind, "NodeNUMAResource DeviceShare Reservation DefaultPreBind"),
            (Bind, "-* Reservation DefaultBinder"),
            (PostBind, "Coscheduling"),
        ],
    )
}

#[test]
fn the_shipped_profile_expands_as_worked_out() {
    use Point::*;
    let lists = check(&chart()).unwrap();
    for (point, want) in [
        (PreEnqueue, "SchedulingGates DynamicResources DefaultPreemption"),
        (QueueSort, "Coscheduling"),
        (
            PreFilter,
            "NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions NodeVolumeLimits VolumeBinding VolumeZone \
             PodTopologySpread InterPodAffinity DynamicResources Reservation NodeNUMAResource DeviceShare \
             Coscheduling ElasticQuota",
        ),
        (
            Filter,
            "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions \
             NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources \
             LoadAwareScheduling NodeNUMAResource DeviceShare Reservation",
        ),
        (PostFilter, "Reservation Coscheduling ElasticQuota DefaultPreemption"),
        (
            PreScore,
            "TaintToleration NodeAffinity NodeResourcesFit VolumeBinding PodTopologySpread InterPodAffinity \
             NodeResourcesBalancedAllocation Reservation",
        ),
        (
            Score,
            "TaintToleration=3 NodeAffinity=2 NodeResourcesFit VolumeBinding PodTopologySpread=2 \
             InterPodAffinity=2 DynamicResources=2 NodeResourcesBalancedAllocation ImageLocality \
             LoadAwareScheduling NodeNUMAResource DeviceShare Reservation=5000",
        ),
        (
            Reserve,
            "VolumeBinding DynamicResources Reservation LoadAwareScheduling NodeNUMAResource DeviceShare \
             Coscheduling ElasticQuota",
        ),
        (Permit, "Coscheduling"),
        (PreBind, "VolumeBinding DynamicResources NodeNUMAResource DeviceShare Reservation DefaultPreBind"),
        (Bind, "Reservation DefaultBinder"),
        (PostBind, "Coscheduling"),
    ] {
        assert_eq!(shown(&lists[point]), want, "{}", point.key());
    }
}

#[test]
fn order_and_weights() {
    use Point::*;
    for (name, custom, point, want) in [
        (
            "scheduler-core#10.S22",
            sets("", &[(PostFilter, "-* ElasticQuota DefaultPreemption")]),
            PostFilter,
            "ElasticQuota DefaultPreemption",
        ),
        (
            "scheduler-core#10.S23 score: first, with its own weight",
            sets("", &[(Score, "NodeResourcesFit=7")]),
            Score,
            "NodeResourcesFit=7 TaintToleration=3 NodeAffinity=2 VolumeBinding PodTopologySpread=2 \
             InterPodAffinity=2 DynamicResources=2 NodeResourcesBalancedAllocation ImageLocality",
        ),
        (
            "scheduler-core#10.S23 filter: in its place",
            sets("", &[(Score, "NodeResourcesFit=7")]),
            Filter,
            "NodeUnschedulable NodeName TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions \
             NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources",
        ),
        (
            "7.4's user file",
            sets("", &[(Score, "-ImageLocality NodeResourcesFit=5")]),
            Score,
            "NodeResourcesFit=5 TaintToleration=3 NodeAffinity=2 VolumeBinding PodTopologySpread=2 \
             InterPodAffinity=2 DynamicResources=2 NodeResourcesBalancedAllocation",
        ),
        (
            "a weight in the multi-point list is taken in place",
            sets("TaintToleration=9 -NodeAffinity -ImageLocality", &[]),
            Score,
            "TaintToleration=9 NodeResourcesFit VolumeBinding PodTopologySpread=2 InterPodAffinity=2 \
             DynamicResources=2 NodeResourcesBalancedAllocation",
        ),
        (
            "the score point's weight wins, also when it gives none",
            sets("", &[(Score, "TaintToleration NodeAffinity=4")]),
            Score,
            "TaintToleration NodeAffinity=4 NodeResourcesFit VolumeBinding PodTopologySpread=2 InterPodAffinity=2 \
             DynamicResources=2 NodeResourcesBalancedAllocation ImageLocality",
        ),
        (
            "all off at a point leaves the named ones, in order, without default weights",
            sets("", &[(Score, "-* ImageLocality TaintToleration NodeAffinity=2")]),
            Score,
            "ImageLocality TaintToleration NodeAffinity=2",
        ),
        ("all off everywhere", sets("-* PrioritySort DefaultBinder NodeName", &[]), Filter, "NodeName"),
        (
            "named at the point and in the list, then the list, then named only here",
            sets("", &[(Filter, "Reservation NodeName NodePorts")]),
            Filter,
            "NodeName NodePorts NodeUnschedulable TaintToleration NodeAffinity NodeResourcesFit VolumeRestrictions \
             NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources Reservation",
        ),
        (
            "enabled wins over disabled of the same name in the multi-point list",
            sets("-NodeName NodeName", &[]),
            Filter,
            "NodeUnschedulable TaintToleration NodeAffinity NodePorts NodeResourcesFit VolumeRestrictions \
             NodeVolumeLimits VolumeBinding VolumeZone PodTopologySpread InterPodAffinity DynamicResources NodeName",
        ),
    ] {
        assert_eq!(shown(&check(&custom).unwrap()[point]), want, "{name}");
    }
}

#[test]
fn complaints() {
    use Point::*;
    for (name, custom, want) in [
        ("unknown", sets("", &[(Filter, "Foo")]), &["FilterPlugin \"Foo\" does not exist"][..]),
        ("unknown everywhere", sets("Foo", &[]), &["PreFilterPlugin \"Foo\" does not exist"]),
        (
            "the first point that would take it complains",
            sets("Foo", &[(PreFilter, "-*")]),
            &["FilterPlugin \"Foo\" does not exist"],
        ),
        (
            "not implemented",
            sets("", &[(Score, "NodeName")]),
            &["plugin \"NodeName\" does not extend ScorePlugin plugin"],
        ),
        (
            "twice",
            sets("", &[(Score, "ImageLocality=2147483647 ImageLocality")]),
            &["plugin \"ImageLocality\" already registered as \"ScorePlugin\""],
        ),
        (
            "twice in the multi-point list",
            sets("DefaultBinder DefaultBinder", &[]),
            &["plugin \"DefaultBinder\" already registered as \"BindPlugin\""],
        ),
        (
            "no queue sort",
            sets("", &[(QueueSort, "-*")]),
            &["only one queue sort plugin required for profile with scheduler name \"s\", but got 0"],
        ),
        (
            "a multi-point plugin that sorts counts",
            sets("Coscheduling", &[]),
            &["only one queue sort plugin required for profile with scheduler name \"s\", but got 2"],
        ),
        (
            "no binder",
            sets("", &[(Bind, "-*")]),
            &["at least one bind plugin is needed for profile with scheduler name \"s\""],
        ),
        (
            "several",
            sets("Bar", &[(Reserve, "NodeName"), (Filter, "Foo")]),
            &[
                "FilterPlugin \"Foo\" does not exist",
                "plugin \"NodeName\" does not extend ReservePlugin plugin",
                "PreFilterPlugin \"Bar\" does not exist",
            ],
        ),
    ] {
        assert_eq!(check(&custom).unwrap_err(), want, "{name}");
    }
}

#[test]
fn patches_are_written_unless_the_user_says_otherwise() {
    for (given, want) in [
        ("", "DefaultPreBind"),
        ("Reservation", "Reservation DefaultPreBind"),
        ("DefaultPreBind Reservation", "DefaultPreBind Reservation"),
        ("-DefaultPreBind", ""),
        ("-* Reservation", "Reservation"),
    ] {
        let mut sets = sets("", &[(Point::PreBind, given)]);
        sets.add_default_pre_bind();
        let names: Vec<&str> =
            sets.points[Point::PreBind].enabled.iter().map(|choice| choice.name.as_str()).collect();
        assert_eq!(names.join(" "), want, "{given}");
    }
}

#[test]
fn names_come_in_the_order_of_the_table() {
    let sets = sets("Zeta NodeName", &[(Point::Filter, "Reservation Alpha SchedulingGates")]);
    assert_eq!(sets.named(), ["SchedulingGates", "NodeName", "Reservation", "Alpha", "Zeta"]);
}
