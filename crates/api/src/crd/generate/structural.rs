//! From the JSON schema of a type to the structural schema that the API server wants: everything
//! inline, one type each, defaults only where they are declared.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Where a type declares a default of its schema. `default` itself is taken: schemars fills it
/// with what serde assumes for an absent field.
const DEFAULT: &str = "x-koord-default";

/// The whole schema of an object.
pub(super) fn schema<K: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    simplify(&mut schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let text = |description: &str| json!({ "type": "string", "description": description });
        properties.insert("apiVersion".to_owned(), text("Group and version of this object."));
        properties.insert("kind".to_owned(), text("Kind of this object."));
    }
    schema
}

fn simplify(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("title");
    map.remove("default");
    if let Some(default) = map.remove(DEFAULT) {
        map.insert("default".to_owned(), default);
    }
    drop_null(map);
    collect_words(map);
    for key in ["items", "additionalProperties"] {
        map.get_mut(key).into_iter().for_each(simplify);
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
}

/// `Option<T>` may be absent, but not null.
fn drop_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get("type") {
        let mut types = types.iter().filter(|one| *one != "null").cloned();
        if let Some(one) = types.next() {
            map.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let null = json!({ "type": "null" });
    if let Some(Value::Array(choices)) = map.get("anyOf")
        && choices.contains(&null)
        && let Some(Value::Object(choice)) = choices.iter().find(|choice| **choice != null).cloned()
    {
        map.remove("anyOf");
        for (key, value) in choice {
            map.entry(key).or_insert(value);
        }
    }
}

/// Words that carry a description each become a plain enum.
fn collect_words(map: &mut Map<String, Value>) {
    let Some(Value::Array(choices)) = map.get("oneOf") else { return };
    let words: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
    if let Some(words) = words {
        map.remove("oneOf");
        map.insert("type".to_owned(), json!("string"));
        map.insert("enum".to_owned(), Value::Array(words));
    }
}
