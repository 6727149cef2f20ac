use super::*;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct Component {
    leader_election: LeaderElection,
    percentage: Option<u32>,
    profiles: Vec<Profile>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
struct LeaderElection {
    leader_elect: bool,
    lease_duration: koord_api::duration::GoDuration,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Profile {
    name: String,
    #[serde(default)]
    mode: Mode,
    args: Option<Raw>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
enum Mode {
    #[default]
    Fast,
    Careful,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Args {
    weight: i64,
}

fn check(text: &str) -> Result<(Document, Component), String> {
    let document = Document::parse("a.yaml", text).map_err(|errors| errors.to_string())?;
    let component = document.decode::<Component>().map_err(|errors| errors.to_string())?;
    Ok((document, component))
}

#[test]
fn yaml_and_json_fill_the_same_struct() {
    let yaml = "apiVersion: v1\nkind: Component\nleaderElection:\n  leaderElect: true\n  leaseDuration: 15s\n\
                profiles:\n- name: a\n  mode: Careful\n  args:\n    weight: 3\n";
    let json = r#"{"apiVersion": "v1", "kind": "Component", "leaderElection": {"leaderElect": true,
        "leaseDuration": "15s"}, "profiles": [{"name": "a", "mode": "Careful", "args": {"weight": 3}}]}"#;
    for text in [yaml, json] {
        let (document, component) = check(text).unwrap();
        assert_eq!(document.kind(), ("v1", "Component"));
        assert!(component.leader_election.leader_elect);
        assert_eq!(component.leader_election.lease_duration.0, 15_000_000_000);
        assert_eq!(component.profiles[0].mode, Mode::Careful);
        let raw = component.profiles[0].args.unwrap();
        assert_eq!(document.decode_raw::<Args>(&raw).unwrap(), Args { weight: 3 });
    }
    let (_, empty) = check("leaderElection:\nprofiles:\n").unwrap();
    assert_eq!(empty, Component::default());
}

#[test]
fn every_mistake_is_named_with_its_place() {
    for (name, text, want) in [
        (
            "unknown field",
            "leaderElection:\n  leaseDuraton: 15s\n",
            "a.yaml:2:17: leaderElection.leaseDuraton: unknown field; did you mean leaseDuration? accepted: leaderElect, leaseDuration",
        ),
        (
            "fields are case-sensitive",
            "Percentage: 3\n",
            "a.yaml:1:13: Percentage: unknown field; did you mean percentage? accepted: leaderElection, percentage, profiles",
        ),
        (
            "wrong type",
            "percentage: many\n",
            "a.yaml:1:13: percentage: \"many\" is not accepted, expected an integer that is not negative and not too large",
        ),
        (
            "negative",
            "percentage: -1\n",
            "a.yaml:1:13: percentage: -1 is not accepted, expected an integer that is not negative and not too large",
        ),
        (
            "wrong word",
            "profiles:\n- name: a\n- name: b\n  mode: Slow\n",
            "a.yaml:4:9: profiles[1].mode: \"Slow\" is not accepted, expected Fast, Careful",
        ),
        ("missing", "profiles:\n- mode: Fast\n", "a.yaml:2:3: profiles[0]: field name is required"),
        (
            "several at once",
            "leaderElection:\n  leaderElect: maybe\npercentage: x\nprofiles:\n- name: 3\n- name: b\n  bogus: 1\n",
            "a.yaml:2:16: leaderElection.leaderElect: \"maybe\" is not accepted, expected true or false\n\
             a.yaml:3:13: percentage: \"x\" is not accepted, expected an integer that is not negative and not too large\n\
             a.yaml:5:9: profiles[0].name: 3 is not accepted, expected a text\n\
             a.yaml:7:10: profiles[1].bogus: unknown field; accepted: name, mode, args",
        ),
        (
            "a list for a map",
            "leaderElection: [1]\n",
            "a.yaml:1:17: leaderElection: a list is not accepted, expected a map of fields",
        ),
        ("nothing", "# only a comment\n", "a.yaml: the file is empty"),
    ] {
        match check(text) {
            Ok(found) => panic!("{name}: accepted as {found:?}"),
            Err(message) => assert_eq!(message, want, "{name}"),
        }
    }
}

#[test]
fn broken_yaml_says_where() {
    for text in ["a: [1, 2\nb: 3\n", "a: 1\na: 2\n", "a: 'x\n", "{\"a\": }}"] {
        let message = check(text).unwrap_err();
        assert!(message.starts_with("a.yaml:"), "{message}");
        assert!(message.as_bytes()[7].is_ascii_digit(), "{message}");
    }
}

#[test]
fn the_kind_is_checked() {
    let accepted = [("a/v1", "Scheduler"), ("a/v1beta1", "Scheduler")];
    let check = |text: &str| {
        let document = Document::parse("a.yaml", text).unwrap();
        document.expect_kind(&accepted).map_err(|errors| errors.to_string())
    };
    assert!(check("apiVersion: a/v1\nkind: Scheduler\n").is_ok());
    assert_eq!(
        check("apiVersion: a/v2\nkind: Scheduler\n").unwrap_err(),
        "a.yaml:1:13: apiVersion: \"a/v2\" is not accepted, expected a/v1 Scheduler or a/v1beta1 Scheduler"
    );
    assert_eq!(
        check("apiVersion: a/v1\n").unwrap_err(),
        "a.yaml:1:1: kind: \"\" is not accepted, expected a/v1 Scheduler or a/v1beta1 Scheduler"
    );
}

#[test]
fn later_checks_keep_places_inside_raw_parts() {
    let (document, component) =
        check("profiles:\n- name: a\n  args:\n    weight: none\n    wait: 3\n").unwrap();
    let raw = component.profiles[0].args.unwrap();
    assert_eq!(
        document.decode_raw::<Args>(&raw).unwrap_err().to_string(),
        "a.yaml:4:13: profiles[0].args.weight: \"none\" is not accepted, expected an integer\n\
         a.yaml:5:11: profiles[0].args.wait: unknown field; did you mean weight? accepted: weight"
    );
    let mut problems = document.problems();
    problems.message_in_raw(&raw, "weight", "must be above 0");
    assert_eq!(
        problems.finish(()).unwrap_err().to_string(),
        "a.yaml:4:13: profiles[0].args.weight: must be above 0"
    );
}

#[test]
fn an_unreadable_file_is_named() {
    let message = Document::read("/nonexistent/koord.yaml").unwrap_err().to_string();
    assert!(message.starts_with("/nonexistent/koord.yaml: cannot read the file: "), "{message}");
}

#[test]
fn what_is_let_through_is_noted() {
    let text = "percentage: 1\nleaderElection:\n  leaderElect: true\n  leaderElect: false\nbogus: 3\npercentage: 2\n\
                profiles:\n- name: a\n  name:\n    b\n";
    let document = Document::parse_noting_duplicates("a.yaml", text).unwrap();
    let twice: Vec<_> =
        document.duplicates().into_iter().map(|problem| (problem.position, problem.path)).collect();
    assert_eq!(
        twice,
        [
            (Some((4, 3)), "leaderElection.leaderElect".to_owned()),
            (Some((6, 1)), "percentage".to_owned()),
            (Some((9, 3)), "profiles[0].name".to_owned()),
        ]
    );
    let Decoded { value, unknown } = document.decode_noting_unknown::<Component>();
    let component = value.unwrap();
    assert_eq!((component.percentage, component.leader_election.leader_elect), (Some(2), false));
    assert_eq!(component.profiles[0].name, "b");
    assert_eq!(unknown.len(), 1);
    assert_eq!((unknown[0].path.as_str(), unknown[0].position), ("bogus", Some((5, 8))));
    assert_eq!(document.position("leaderElection.leaderElect"), (4, 16));
    assert!(Document::parse("a.yaml", text).is_err());
}
