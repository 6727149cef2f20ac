use serde_json::json;

use super::super::fault::join;
use super::*;

/// Parses a schema and gives back what the API server would say of it.
fn refusal(raw: Value) -> String {
    match parse(&raw, "s") {
        Ok(_) => String::new(),
        Err(faults) => join(&faults),
    }
}

#[test]
fn non_structural_schemas_are_refused_in_the_api_servers_words() {
    for (name, raw, want) in [
        ("sound", json!({"type": "object", "properties": {"a": {"type": "string"}}}), ""),
        (
            "no type",
            json!({"type": "object", "properties": {"a": {}}}),
            "s.properties[a].type: Required value: must not be empty for specified object fields",
        ),
        (
            "list without items",
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            "s.properties[a].items: Required value: must be specified",
        ),
        (
            "type in a branch",
            json!({"type": "object", "properties": {"a": {"type": "string"}},
                   "anyOf": [{"properties": {"a": {"type": "string"}}}]}),
            "s.anyOf[0].properties[a].type: Forbidden: must be empty to be structural",
        ),
        (
            "branch limits a field nobody describes",
            json!({"type": "object", "allOf": [{"properties": {"a": {"minLength": 1}}}]}),
            "s.properties[a]: Required value: because it is defined in s.allOf[0].properties[a]",
        ),
        (
            "map with fields",
            json!({"type": "object", "properties": {"m": {"type": "object",
                   "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}}}),
            "s.properties[m].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            "keys not required",
            json!({"type": "object", "properties": {"l": {"type": "array", "x-kubernetes-list-type": "map",
                   "x-kubernetes-list-map-keys": ["k"],
                   "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}),
            "s.properties[l].items.properties[k].default: Required value: this property is in \
             x-kubernetes-list-map-keys, so it must have a default or be a required property",
        ),
        (
            "default of the wrong type",
            json!({"type": "object", "properties": {"a": {"type": "string", "default": 1}}}),
            "s.properties[a].default: Invalid value: \"integer\":  in body must be of type string: \"integer\"",
        ),
        (
            "unknown field in a default",
            json!({"type": "object", "properties": {"a": {"type": "object", "default": {"b": 1}}}}),
            "s.properties[a].default: Invalid value: {\"b\":1}: must not have unknown fields",
        ),
        (
            "unknown type",
            json!({"type": "object", "properties": {"a": {"type": "text"}}}),
            "s.properties[a].type: Unsupported value: \"text\": supported values: \"array\", \"boolean\", \
             \"integer\", \"number\", \"object\", \"string\"",
        ),
        (
            "rules",
            json!({"type": "object", "properties": {"a": {"type": "integer",
                   "x-kubernetes-validations": [{"rule": "self > 1"}]}}}),
            "s.properties[a].x-kubernetes-validations: Forbidden: this API server cannot check CEL rules; \
             remove them to install the definition here",
        ),
        (
            "int-or-string pattern",
            json!({"type": "object", "properties": {"a": {"x-kubernetes-int-or-string": true,
                   "anyOf": [{"type": "integer"}, {"type": "string"}]}}}),
            "",
        ),
    ] {
        assert_eq!(refusal(raw), want, "{name}");
    }
}

#[test]
fn values_are_judged_in_the_api_servers_words() {
    let schema = parse(
        &json!({"type": "object", "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 10},
            "f": {"type": "number", "exclusiveMinimum": true, "minimum": 0.5, "multipleOf": 0.5},
            "s": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^a"},
            "e": {"type": "string", "enum": ["x", "y"]},
            "q": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "l": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            "t": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "k": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                  "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}}}},
            "o": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                  "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "d": {"type": "string", "format": "date-time", "nullable": true},
        }}),
        "s",
    )
    .unwrap();
    for (value, want) in [
        (json!({"n": 11}), "n: Invalid value: 11: n in body should be less than or equal to 10"),
        (json!({"n": 0}), "n: Invalid value: 0: n in body should be greater than or equal to 1"),
        (json!({"n": 1.5}), r#"n: Invalid value: "number": n in body must be of type integer: "number""#),
        (json!({"n": 2.0}), ""),
        (json!({"n": null}), r#"n: Invalid value: "null": n in body must be of type integer: "null""#),
        (json!({"f": 0.5}), "f: Invalid value: 0.5: f in body should be greater than 0.5"),
        (json!({"f": 1.25}), "f: Invalid value: 1.25: f in body should be a multiple of 0.5"),
        (json!({"s": "abcde"}), "s: Too long: may not be more than 4 bytes"),
        (json!({"s": "a"}), r#"s: Invalid value: "a": s in body should be at least 2 chars long"#),
        (json!({"s": "ba"}), r#"s: Invalid value: "ba": s in body should match '^a'"#),
        (json!({"e": "z"}), r#"e: Unsupported value: "z": supported values: "x", "y""#),
        (json!({"q": 1}), ""),
        (
            json!({"q": true}),
            "[q: Invalid value: \"boolean\": q in body must be of type integer,string: \"boolean\", \
             <nil>: Invalid value: \"\": \"q\" must validate at least one schema (anyOf), \
             q: Invalid value: \"boolean\": q in body must be of type integer: \"boolean\"]",
        ),
        (json!({"l": ["a", "b"]}), "l: Too many: 2: must have at most 1 item"),
        (json!({"t": ["a", "b", "a", "a"]}), r#"t[2]: Duplicate value: "a""#),
        (json!({"k": [{"n": "a"}, {"n": "a"}]}), r#"k[1]: Duplicate value: {"n":"a"}"#),
        (
            json!({"o": {}}),
            "[<nil>: Invalid value: \"\": \"o\" must validate one and only one schema (oneOf). Found none valid, \
             o.a: Required value]",
        ),
        (
            json!({"o": {"a": "", "b": ""}}),
            "<nil>: Invalid value: \"\": \"o\" must validate one and only one schema (oneOf). \
             Found 2 valid alternatives",
        ),
        (
            json!({"m": {"a": 1}}),
            r#"m.a: Invalid value: "integer": m.a in body must be of type boolean: "integer""#,
        ),
        (json!({"d": null}), ""),
        (json!({"d": "x"}), r#"d: Invalid value: "x": d in body must be of type date-time: "x""#),
        (json!({"d": 1}), r#"d: Invalid value: "int64": d in body must be of type date-time: "int64""#),
    ] {
        let faults = validate::validate(&value, &schema);
        let text = if faults.is_empty() { String::new() } else { join(&faults) };
        assert_eq!(text, want, "{value}");
        assert!(
            validate::validate_update(&value, &value, &schema)
                .iter()
                .all(|f| f.fault == super::super::Fault::Duplicate)
        );
    }
}
