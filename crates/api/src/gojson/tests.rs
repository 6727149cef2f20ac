use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Outer {
    #[serde(skip_serializing_if = "Option::is_none")]
    enable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<i64>,
    count: i32,
    ratio: f64,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    inner: Inner,
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<Inner>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    table: BTreeMap<String, Inner>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    by_number: BTreeMap<i32, Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    list: Vec<Inner>,
    #[serde(skip_serializing_if = "Value::is_null")]
    any: Value,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Inner {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_qos: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_qos: Option<i64>,
}

/// Decodes and encodes again, or gives the error's text.
fn check(document: &str) -> String {
    match from_str::<Outer>(document) {
        Ok(outer) => to_string(&outer).expect("encodes"),
        Err(error) => error.to_string(),
    }
}

fn with(members: &str) -> String {
    let empty = r#"{"count":0,"ratio":0,"inner":{}}"#;
    match members {
        "" => empty.to_owned(),
        _ => members.to_owned(),
    }
}

#[test]
fn struct_rules() {
    for (document, want) in [
        ("null", ""),
        ("{}", ""),
        (r#"{"unknown":[{"deep":1}]}"#, ""),
        (r#"{"ENABLE":true}"#, r#"{"enable":true,"count":0,"ratio":0,"inner":{}}"#),
        (r#"{"percent":20,"PERCENT":30}"#, r#"{"percent":30,"count":0,"ratio":0,"inner":{}}"#),
        (r#"{"PERCENT":30,"percent":20}"#, r#"{"percent":20,"count":0,"ratio":0,"inner":{}}"#),
        (r#"{"percent":20,"percent":null}"#, ""),
        (r#"{"percent":null,"percent":20}"#, r#"{"percent":20,"count":0,"ratio":0,"inner":{}}"#),
        (r#"{"count":20,"count":null}"#, r#"{"count":20,"ratio":0,"inner":{}}"#),
        (r#"{"name":"a","Name":null}"#, r#"{"count":0,"ratio":0,"name":"a","inner":{}}"#),
        (
            r#"{"inner":{"cpuQos":1},"INNER":{"memoryQOS":2}}"#,
            r#"{"count":0,"ratio":0,"inner":{"cpuQos":1,"memoryQos":2}}"#,
        ),
        (
            r#"{"inner":{"cpuQos":1},"inner":null,"inner":{"memoryQos":2}}"#,
            r#"{"count":0,"ratio":0,"inner":{"cpuQos":1,"memoryQos":2}}"#,
        ),
        (
            r#"{"pointer":{"cpuQos":1},"pointer":null,"pointer":{"memoryQos":2}}"#,
            r#"{"count":0,"ratio":0,"inner":{},"pointer":{"memoryQos":2}}"#,
        ),
        (
            r#"{"pointer":{"cpuQos":1},"pointer":{"memoryQos":2}}"#,
            r#"{"count":0,"ratio":0,"inner":{},"pointer":{"cpuQos":1,"memoryQos":2}}"#,
        ),
        (
            r#"{"table":{"A":{"cpuQos":1},"a":{"cpuQos":2}},"table":{"a":{"memoryQos":3},"b":null}}"#,
            r#"{"count":0,"ratio":0,"inner":{},"table":{"A":{"cpuQos":1},"a":{"memoryQos":3},"b":{}}}"#,
        ),
        (r#"{"table":{"a":{}},"table":null}"#, ""),
        (
            r#"{"byNumber":{"10":["a"],"2":null,"1":["b",null]}}"#,
            r#"{"count":0,"ratio":0,"inner":{},"byNumber":{"1":["b",""],"10":["a"],"2":[]}}"#,
        ),
        (
            r#"{"list":[{"cpuQos":1},{"cpuQos":2}],"list":[{"memoryQos":3}]}"#,
            r#"{"count":0,"ratio":0,"inner":{},"list":[{"memoryQos":3}]}"#,
        ),
        (r#"{"list":[null]}"#, r#"{"count":0,"ratio":0,"inner":{},"list":[{}]}"#),
        (
            r#"{"any":{"b":[1,null],"a":"<x>"}}"#,
            r#"{"count":0,"ratio":0,"inner":{},"any":{"a":"\u003cx\u003e","b":[1,null]}}"#,
        ),
        (r#"{"ratio":1e2,"count":-0}"#, r#"{"count":0,"ratio":100,"inner":{}}"#),
    ] {
        assert_eq!(check(document), with(want), "{document}");
    }
}

#[test]
fn errors_name_the_place() {
    for (document, want) in [
        ("[]", "json: cannot unmarshal array into Go value of type object (at byte 0)"),
        (
            r#"{"percent":5.0}"#,
            "json: cannot unmarshal number 5.0 into Go struct field percent of type int64 (at byte 11)",
        ),
        (
            r#"{"percent":"5"}"#,
            "json: cannot unmarshal string into Go struct field percent of type int64 (at byte 11)",
        ),
        (
            r#"{"percent":1e2}"#,
            "json: cannot unmarshal number 1e2 into Go struct field percent of type int64 (at byte 11)",
        ),
        (
            r#"{"count":2147483648}"#,
            "json: cannot unmarshal number 2147483648 into Go struct field count of type int32 (at byte 9)",
        ),
        (
            r#"{"ratio":1e400}"#,
            "json: cannot unmarshal number 1e400 into Go struct field ratio of type float64 (at byte 9)",
        ),
        (
            r#"{"percent":"x","percent":1}"#,
            "json: cannot unmarshal string into Go struct field percent of type int64 (at byte 11)",
        ),
        (
            r#"{"list":[{},{"CPUqos":true}]}"#,
            "json: cannot unmarshal bool into Go struct field list[1].cpuQos of type int64 (at byte 22)",
        ),
        (
            r#"{"table":{"a":[]}}"#,
            "json: cannot unmarshal array into Go struct field table.a of type object (at byte 14)",
        ),
        (
            r#"{"byNumber":{"x":[]}}"#,
            "json: cannot unmarshal number x into Go struct field byNumber.x of type int32 (at byte 17)",
        ),
    ] {
        assert_eq!(check(document), want, "{document}");
    }
    let error = from_str::<Outer>(r#"{"list":[{"cpuQos":true}]}"#).expect_err("wrong type");
    assert_eq!(
        (error.path().as_str(), error.offset(), error.is_syntax()),
        ("list[0].cpuQos", Some(19), false)
    );
}

#[test]
fn syntax_is_strict() {
    let deep = "[".repeat(200);
    for (document, want) in [
        ("", "unexpected end of JSON input"),
        (" \n", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        (r#"{"a"#, "unexpected end of JSON input"),
        (r#"{"a":1"#, "unexpected end of JSON input"),
        ("-", "unexpected end of JSON input"),
        ("1.", "unexpected end of JSON input"),
        ("tru", "unexpected end of JSON input"),
        ("{} x", "invalid character 'x' after top-level value (at byte 3)"),
        ("nullnull", "invalid character 'n' after top-level value (at byte 4)"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string (at byte 7)"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string (at byte 1)"),
        (r#"{"a" 1}"#, "invalid character '1' after object key (at byte 5)"),
        (r#"{"a":1 "b":2}"#, "invalid character '\"' after object key:value pair (at byte 7)"),
        ("[1,]", "invalid character ']' looking for beginning of value (at byte 3)"),
        ("[1 2]", "invalid character '2' after array element (at byte 3)"),
        ("[01]", "invalid character '1' after array element (at byte 2)"),
        ("01", "invalid character '1' after top-level value (at byte 1)"),
        ("+1", "invalid character '+' looking for beginning of value (at byte 0)"),
        (".5", "invalid character '.' looking for beginning of value (at byte 0)"),
        ("-x", "invalid character 'x' in numeric literal (at byte 1)"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal (at byte 2)"),
        ("1e+x", "invalid character 'x' in exponent of numeric literal (at byte 3)"),
        ("nul1", "invalid character '1' in literal null (expecting 'l') (at byte 3)"),
        ("'a'", "invalid character '\\'' looking for beginning of value (at byte 0)"),
        ("\"a\nb\"", "invalid character '\\n' in string literal (at byte 2)"),
        (r#""\x""#, "invalid character 'x' in string escape code (at byte 2)"),
        (r#""\u12g4""#, "invalid character 'g' in \\u hexadecimal character escape (at byte 5)"),
        ("// {}", "invalid character '/' looking for beginning of value (at byte 0)"),
        ("é", "invalid character 'é' looking for beginning of value (at byte 0)"),
        (&deep, "exceeded max depth 128 (at byte 128)"),
    ] {
        let error = parse(document).expect_err(document);
        assert_eq!(error.to_string(), want, "{document}");
        assert!(error.is_syntax(), "{document}");
    }
}

#[test]
fn strings_read_and_written() {
    for (document, text, written) in [
        (r#""a\"\\\/\b\f\n\r\t""#, "a\"\\/\u{8}\u{c}\n\r\t", r#""a\"\\/\b\f\n\r\t""#),
        (r#""\u00e9\u20AC""#, "é€", "\"é€\""),
        (r#""\ud83d\ude00""#, "😀", "\"😀\""),
        (r#""\ud83dx""#, "\u{fffd}x", "\"\u{fffd}x\""),
        (r#""\ude00""#, "\u{fffd}", "\"\u{fffd}\""),
        (r#""\ud83d\u0041""#, "\u{fffd}A", "\"\u{fffd}A\""),
        ("\"<>&\u{2028}\u{2029}\"", "<>&\u{2028}\u{2029}", r#""\u003c\u003e\u0026\u2028\u2029""#),
        ("\"\u{7f}\\u0001\"", "\u{7f}\u{1}", "\"\u{7f}\\u0001\""),
    ] {
        let value = parse(document).expect(document);
        assert_eq!(value.as_str(), Some(text), "{document}");
        assert_eq!(to_string(text).expect("encodes"), written, "{document}");
    }
}

#[test]
fn floats_as_go_writes_them() {
    for (number, want) in [
        (0.0, "0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e-7, "1.5e-7"),
        (1e-6, "0.000001"),
        (-2.5, "-2.5"),
    ] {
        assert_eq!(to_string(&number).expect("encodes"), want);
    }
    assert!(to_string(&f64::NAN).is_err());
    assert_eq!(to_string(&0.1f32).expect("encodes"), "0.1");
}

#[test]
fn layers_merge_like_repeated_decoding() {
    let base = parse(r#"{"percent":1,"inner":{"cpuQos":1},"table":{"a":{"cpuQos":1}},"list":[{},{}]}"#);
    let over = parse(r#"{"count":2,"inner":{"memoryQos":2},"table":{"a":{"memoryQos":2}},"list":[{}]}"#);
    let merged: Outer = decode_layers(&[&base.expect("parses"), &over.expect("parses")]).expect("decodes");
    let want = r#"{"percent":1,"count":2,"ratio":0,"inner":{"cpuQos":1,"memoryQos":2},"table":{"a":{"memoryQos":2}},"list":[{}]}"#;
    assert_eq!(to_string(&merged).expect("encodes"), want);
    assert_eq!(decode_layers::<Outer>(&[]).expect("decodes"), Outer::default());
}

#[test]
fn one_value_two_structs() {
    let value = parse(r#"{"Name":"x","cpuQOS":1,"nodeSelector":{"matchLabels":{"A":"1"}}}"#).expect("parses");
    assert_eq!(value.decode::<Outer>().expect("decodes").name, "x");
    assert_eq!(value.decode::<Inner>().expect("decodes").cpu_qos, Some(1));
    let selector = value.get("nodeSelector").expect("present");
    let selector: k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector =
        selector.decode().expect("decodes");
    assert_eq!(selector.match_labels.expect("present")["A"], "1");
}

#[test]
fn a_tree_inside_a_struct_keeps_places_and_digits() {
    let outer: Outer = from_str(r#"{"any":[1.50,{"percent":"x"}]}"#).expect("decodes");
    assert_eq!(outer.any.to_string(), r#"[1.50,{"percent":"x"}]"#);
    let error = outer.any.as_array().expect("array")[1].decode::<Outer>().expect_err("wrong type");
    assert_eq!((error.path().as_str(), error.offset()), ("percent", Some(24)));
    let foreign: Value = serde_json::from_str(r#"{"a":[1,"x",null,1.5]}"#).expect("reads");
    assert_eq!(foreign, parse(r#"{"a":[1,"x",null,1.5]}"#).expect("parses"));
}

#[test]
fn resource_lists() {
    use crate::quantity::ResourceList;
    for (name, document, want) in [
        ("api#1.2.J10 same key", r#"{"cpu":"1","cpu":"2"}"#, Some(r#"{"cpu":"2"}"#)),
        ("api#1.2.J10 case matters", r#"{"cpu":"1","CPU":"2"}"#, Some(r#"{"CPU":"2","cpu":"1"}"#)),
        ("api#1.2.J10 null", r#"{"cpu":null}"#, Some(r#"{"cpu":"0"}"#)),
        ("api#1.2.J10 empty", r#"{"cpu":""}"#, None),
        ("digits as written", r#"{"cpu":1e3,"memory":1.5}"#, Some(r#"{"cpu":"1e3","memory":"1500m"}"#)),
    ] {
        let read = from_str::<ResourceList>(document).ok();
        let text = read.map(|list| to_string(&list).expect("encodes"));
        assert_eq!(text.as_deref(), want, "{name}");
    }
}

#[test]
fn null_durations() {
    use crate::duration::GoDuration;
    let optional: Vec<Option<GoDuration>> = from_str(r#"[null,"5m"]"#).expect("decodes");
    assert_eq!(optional[0], None);
    let error = from_str::<Vec<GoDuration>>("[null]").expect_err("null is no duration");
    assert_eq!(error.to_string(), r#"[0]: time: invalid duration "" (at byte 1)"#);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Kind::Null),
        any::<bool>().prop_map(Kind::Bool),
        any::<i64>().prop_map(|number| Kind::Number(number.to_string())),
        any::<String>().prop_map(Kind::String),
    ];
    leaf.prop_map(Value::from).prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(|items| Kind::Array(items).into()),
            prop::collection::vec((any::<String>(), inner), 0..5).prop_map(|all| Kind::Object(all).into()),
        ]
    })
}

proptest! {
    #[test]
    fn text_of_a_tree_reads_back(value in any_value()) {
        prop_assert_eq!(parse(&value.to_string()).expect("own text"), value);
    }

    #[test]
    fn agrees_with_serde_json_on_what_is_json(text in r#"[\[\]{},:"0-9eE+\-. truefalsn\\u]{0,24}"#) {
        let other = serde_json::from_str::<serde::de::IgnoredAny>(&text);
        prop_assert_eq!(parse(&text).is_ok(), other.is_ok(), "{}: {:?}", text, other);
    }

    #[test]
    fn decoding_never_panics(text in "\\PC{0,64}", value in any_value()) {
        let _ = from_str::<Outer>(&text);
        let _ = value.decode::<Outer>();
    }
}
