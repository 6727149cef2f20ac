//! The worked examples of api 1.3, and the text form.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The label sets of the spec's table, in its order.
const SETS: [&str; 6] = ["{}", "a=1", "a=2", "a=", "b=1", "a=1,b=1"];

fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn matching(selector: &Selector) -> Vec<&'static str> {
    SETS.into_iter().filter(|set| selector.matches(&labels(set))).collect()
}

fn object(selector: serde_json::Value) -> Option<LabelSelector> {
    serde_json::from_value(selector).unwrap()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Option<LabelSelector> {
    object(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
}

#[test]
fn objects() {
    for (key, selector, want) in [
        ("api#1.3.S1", json!(null), &[][..]),
        ("api#1.3.S1", json!({}), &SETS),
        ("api#1.3.S1", json!({"matchLabels": {}}), &SETS),
        ("api#1.3.S2", json!({"matchLabels": {"a": "1"}}), &["a=1", "a=1,b=1"]),
        ("api#1.3.S2", json!({"matchLabels": {"a": ""}}), &["a="]),
        (
            "api#1.3.S3",
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}),
            &["a=1", "a=2", "a=1,b=1"],
        ),
        (
            "api#1.3.S4",
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
            &["{}", "a=2", "a=", "b=1"],
        ),
        (
            "api#1.3.S5",
            json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
            &["a=1", "a=2", "a=", "a=1,b=1"],
        ),
        (
            "api#1.3.S5",
            json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
            &["{}", "b=1"],
        ),
        (
            "api#1.3.S6",
            json!({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}),
            &["a=1,b=1"],
        ),
    ] {
        let selector = object(selector);
        assert_eq!(matching(&Selector::new(selector.as_ref()).unwrap()), want, "{key}");
        let unchecked = Selector::new_unchecked_labels(selector.as_ref()).unwrap();
        assert_eq!(matching(&unchecked), want, "{key} unchecked");
    }
}

#[test]
fn wrong_objects() {
    let empty = "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty";
    for (key, selector, message) in [
        ("api#1.3.S7", expression("a", "In", &[]), empty),
        ("api#1.3.S7", object(json!({"matchExpressions": [{"key": "a", "operator": "NotIn"}]})), empty),
        (
            "api#1.3.S8",
            expression("a", "Exists", &["1"]),
            r#"values: Invalid value: ["1"]: values set must be empty for exists and does not exist"#,
        ),
        ("api#1.3.S9", expression("a", "in", &["1"]), r#""in" is not a valid label selector operator"#),
        ("api#1.3.S9", expression("a", "Gt", &["1"]), r#""Gt" is not a valid label selector operator"#),
        ("api#1.3.S9", expression("a", "Bogus", &["1"]), r#""Bogus" is not a valid label selector operator"#),
    ] {
        assert_eq!(Selector::new(selector.as_ref()).unwrap_err().to_string(), message, "{key}");
        assert!(Selector::new_unchecked_labels(selector.as_ref()).is_err(), "{key} unchecked");
    }
    let both = Selector::new(expression("a b", "In", &["c d"]).as_ref()).unwrap_err().to_string();
    assert!(both.starts_with("[key: Invalid value: \"a b\": name part must"), "{both}");
    assert!(both.contains(", values[0][a b]: Invalid value: \"c d\": a valid label must"), "{both}");
}

#[test]
fn unchecked_labels_match_nothing_when_wrong() {
    let wrong = object(json!({"matchLabels": {"a b": "1"}}));
    let error = Selector::new(wrong.as_ref()).unwrap_err().to_string();
    assert!(
        error.starts_with("key: Invalid value: \"a b\": name part must consist of"),
        "api#1.3.S10 {error}"
    );
    let unchecked = Selector::new_unchecked_labels(wrong.as_ref()).unwrap();
    assert_eq!(matching(&unchecked), [""; 0], "api#1.3.S10");
}

#[test]
fn texts() {
    for (text, canonical, want) in [
        ("", "", &SETS[..]),
        ("a=1", "a=1", &["a=1", "a=1,b=1"]),
        ("b, a == 1", "a=1,b", &["a=1,b=1"]),
        ("a!=1", "a!=1", &["{}", "a=2", "a=", "b=1"]),
        ("a in (2,1)", "a in (1,2)", &["a=1", "a=2", "a=1,b=1"]),
        ("a notin (1,,)", "a notin (,1)", &["{}", "a=2", "b=1"]),
        ("a in ()", "a in ()", &["a="]),
        ("a=", "a=", &["a="]),
        ("a", "a", &["a=1", "a=2", "a=", "a=1,b=1"]),
        ("!a", "!a", &["{}", "b=1"]),
        ("a>1", "a>1", &["a=2"]),
        ("a<2,b", "a<2,b", &["a=1,b=1"]),
        ("in in (in),notin", "in in (in),notin", &[]),
        ("a\u{0}=\u{0}1", "a=1", &["a=1", "a=1,b=1"]),
        ("a \0,b", "a", &["a=1", "a=2", "a=", "a=1,b=1"]),
    ] {
        let selector: Selector = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(selector.to_string(), canonical, "{text:?}");
        assert_eq!(matching(&selector), want, "{text:?}");
    }
}

#[test]
fn wrong_texts() {
    for (text, message) in [
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (=", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        ("a in (,=", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "a>",
            "unable to parse requirement: values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        assert_eq!(text.parse::<Selector>().unwrap_err().to_string(), message, "{text:?}");
    }
    let wrong_key = "-a".parse::<Selector>().unwrap_err().to_string();
    assert!(
        wrong_key.starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name"),
        "{wrong_key}"
    );
}

#[test]
fn nothing_and_everything() {
    assert!(Selector::nothing().is_nothing() && !Selector::nothing().matches(&[("a", "1")]));
    assert!(Selector::everything().is_everything() && Selector::everything().matches(&None));
    let requirement = &"a in (x)".parse::<Selector>().unwrap().requirements()[0].clone();
    assert_eq!(
        (requirement.key(), requirement.operator(), requirement.values()),
        ("a", Operator::In, &["x".to_owned()][..])
    );
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_selector_back(text in "([!]?[a-c]{1,2}( in \\([a-c,]{0,4}\\)| notin \\(x\\)|=[a-c]?|!=b|>1|<2)?,?){0,4}") {
        if let Ok(selector) = text.parse::<Selector>() {
            prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector));
        }
    }

    #[test]
    fn any_text_reads_or_fails_cleanly(text in any::<String>()) {
        let _ = text.parse::<Selector>();
        let _ = text.parse::<super::super::FieldSelector>();
    }
}
