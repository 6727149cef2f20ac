use super::*;
use crate::profile::expand::PluginSets;

/// The default profile with plugins put at points.
fn profile(name: &str, points: &[(Point, &'static str)]) -> Profile {
    let mut lists = PluginSets::defaults().expand(name).unwrap();
    for (point, plugin) in points {
        lists[*point].push(Enabled { plugin, weight: 1 });
    }
    Profile {
        scheduler_name: name.to_owned(),
        percentage_of_nodes_to_score: None,
        points: lists,
        args: Args::default(),
    }
}

#[test]
fn a_check_without_accounts_is_warned_of() {
    for (points, want) in [
        (&[][..], &[][..]),
        (&[(Point::Filter, "Reservation"), (Point::Reserve, "Reservation")], &[]),
        (
            &[(Point::PreFilter, "Reservation"), (Point::Filter, "Reservation")],
            &["plugin Reservation is enabled at filter but not at reserve"],
        ),
        (
            &[
                (Point::Filter, "NodeNUMAResource"),
                (Point::Filter, "DeviceShare"),
                (Point::PreFilter, "ElasticQuota"),
                (Point::Permit, "Coscheduling"),
            ],
            &[
                "plugin NodeNUMAResource is enabled at filter but not at reserve",
                "plugin DeviceShare is enabled at filter but not at reserve",
                "plugin ElasticQuota is enabled at preFilter but not at reserve",
                "plugin Coscheduling is enabled at permit but not at reserve",
            ],
        ),
    ] {
        assert_eq!(profile("s", points).warnings(), want, "{points:?}");
    }
}

#[test]
fn profiles_side_by_side() {
    let sorted = |name: &str, sort: &'static str| {
        let mut profile = profile(name, &[]);
        profile.points[Point::QueueSort] = vec![Enabled { plugin: sort, weight: 1 }];
        profile
    };
    let check = |profiles: &[Profile]| -> Vec<String> {
        check_together(profiles).iter().map(ToString::to_string).collect()
    };
    assert!(check(&[profile("a", &[]), profile("b", &[])]).is_empty());
    assert_eq!(
        check(&[profile("a", &[]), profile("a", &[]), profile("", &[])]),
        [
            "initializing profiles: duplicate profile with scheduler name \"a\"",
            "initializing profiles: scheduler name is needed",
        ]
    );
    // scheduler-core#10.S21, when nothing has looked at the files before.
    assert_eq!(
        check(&[sorted("a", "PrioritySort"), sorted("b", "Coscheduling")]),
        [
            "initializing profiles: different queue sort plugins for profile \"b\": \"Coscheduling\", first: \"PrioritySort\""
        ]
    );
}

#[test]
fn complaints_name_the_profile() {
    let error = ProfileError::Args {
        scheduler: "s".to_owned(),
        plugin: "NodeResourcesFit".to_owned(),
        message: "no".to_owned(),
    };
    assert_eq!(
        error.to_string(),
        "initializing profiles: creating profile for scheduler name s: initializing plugin \"NodeResourcesFit\": no"
    );
}
