//! Schemas of custom resources, and objects to hold against them: a schema and, behind a zero byte, an object.
#![no_main]

use koord_sandbox::schema::decode::decode_custom;
use koord_sandbox::schema::{crd, shape, validate};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let Some((schema, object)) = text.split_once('\0') else { return };
    let Ok(raw) = serde_json::from_str::<Value>(schema) else { return };
    let Ok(schema) = crd::parse(&raw, "schema") else { return };
    let Ok(decoded) = decode_custom(object.as_bytes(), &schema) else { return };
    let mut object = decoded.value;
    shape::drop_nulls(&mut object, &schema);
    shape::fill_defaults(&mut object, &schema);
    let filled = object.clone();
    shape::fill_defaults(&mut object, &schema);
    assert_eq!(object, filled, "defaults are filled once");
    let _ = validate::validate(&object, &schema);
    let _ = validate::validate_update(&object, &filled, &schema);
});
