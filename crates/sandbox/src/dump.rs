//! Clusters in files: what `koord sandbox save` or `kubectl get -o json|yaml` wrote, as a list of objects.
//!
//! JSON documents are only cut into items, not read, so that a dump of a large cluster costs its own
//! size and no more. YAML is turned into JSON first.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A file that is not a dump.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("not UTF-8 text: the byte at {at} cannot be read")]
    Encoding { at: usize },
    #[error("neither JSON nor YAML: {why}")]
    Syntax { why: String },
    #[error("document {document} is {found}; accepted are Kubernetes objects and Lists of them")]
    NotAnObject { document: usize, found: String },
    #[error("item {item} of document {document} has no {field}")]
    Untyped { document: usize, item: usize, field: &'static str },
}

/// A file's text, all JSON.
pub struct Dump {
    json: String,
}

/// One object of a dump, not yet read.
#[derive(Clone, Debug)]
pub struct Item<'a> {
    pub api_version: Cow<'a, str>,
    pub kind: Cow<'a, str>,
    pub json: &'a str,
}

impl Item<'_> {
    /// Group and version; the core group is empty.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }
}

/// What a document says of itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    #[serde(borrow, default)]
    api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

impl Dump {
    /// Takes JSON (one document or several) or YAML.
    pub fn parse(bytes: Vec<u8>) -> Result<Dump, DumpError> {
        let text = String::from_utf8(bytes)
            .map_err(|error| DumpError::Encoding { at: error.utf8_error().valid_up_to() })?;
        if text.trim_start().starts_with('{') {
            return Ok(Dump { json: text });
        }
        let options = serde_saphyr::options! {
            // A file the user names is not an attack, and dumps are long.
            budget: None,
        };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(&text, options)
            .map_err(|error| DumpError::Syntax { why: error.to_string() })?;
        let mut json = String::with_capacity(text.len());
        for document in documents {
            json.push_str(&document.to_string());
            json.push('\n');
        }
        Ok(Dump { json })
    }

    /// The objects, in the file's order.
    pub fn items(&self) -> Result<Vec<Item<'_>>, DumpError> {
        let mut items = Vec::new();
        let stream = serde_json::Deserializer::from_str(&self.json).into_iter::<&RawValue>();
        for (i, document) in stream.enumerate() {
            let raw = document.map_err(|error| DumpError::Syntax { why: error.to_string() })?;
            cut(i + 1, raw, &mut items)?;
        }
        Ok(items)
    }
}

/// The items of a List, or the document itself.
fn cut<'a>(document: usize, raw: &'a RawValue, items: &mut Vec<Item<'a>>) -> Result<(), DumpError> {
    let head: Head<'a> = serde_json::from_str(raw.get())
        .map_err(|_| DumpError::NotAnObject { document, found: excerpt(raw.get()) })?;
    let Some(list) = head.items else {
        items.push(typed(document, 1, head, None, raw)?);
        return Ok(());
    };
    let inherited = head.kind.as_deref().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default();
    let inherited = head.api_version.as_deref().map(|version| (version, inherited));
    for (i, raw) in list.into_iter().enumerate() {
        let head: Head<'a> = serde_json::from_str(raw.get())
            .map_err(|_| DumpError::NotAnObject { document, found: excerpt(raw.get()) })?;
        items.push(typed(document, i + 1, head, inherited, raw)?);
    }
    Ok(())
}

fn typed<'a>(
    document: usize,
    item: usize,
    head: Head<'a>,
    inherited: Option<(&str, &str)>,
    raw: &'a RawValue,
) -> Result<Item<'a>, DumpError> {
    let of_list = |text: &str| (!text.is_empty()).then(|| Cow::Owned(text.to_owned()));
    let kind = head.kind.or_else(|| inherited.and_then(|(_, kind)| of_list(kind)));
    let api_version = head.api_version.or_else(|| inherited.and_then(|(version, _)| of_list(version)));
    let untyped = |field| DumpError::Untyped { document, item, field };
    Ok(Item {
        kind: kind.ok_or_else(|| untyped("kind"))?,
        api_version: api_version.ok_or_else(|| untyped("apiVersion"))?,
        json: raw.get(),
    })
}

fn excerpt(text: &str) -> String {
    const SHOWN: usize = 40;
    let short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<String>, String> {
        let dump = Dump::parse(text.as_bytes().to_vec()).map_err(|e| e.to_string())?;
        let items = dump.items().map_err(|e| e.to_string())?;
        Ok(items.iter().map(|i| format!("{} {}", i.api_version, i.kind)).collect())
    }

    #[test]
    fn every_form_kubectl_writes_is_read() {
        for (form, text) in [
            (
                "list",
                r#"{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"Pod"},{"kind":"Job","apiVersion":"batch/v1"}],"kind":"List"}"#,
            ),
            (
                "raw lists",
                r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{}}]} {"kind":"JobList","apiVersion":"batch/v1","items":[{}]}"#,
            ),
            (
                "documents",
                "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n{\"apiVersion\":\"batch/v1\",\"kind\":\"Job\"}",
            ),
            ("yaml", "apiVersion: v1\nkind: Pod\n---\n---\napiVersion: batch/v1\nkind: Job\n"),
            (
                "yaml list",
                "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- {apiVersion: batch/v1, kind: Job}\n",
            ),
        ] {
            assert_eq!(names(text), Ok(vec!["v1 Pod".to_owned(), "batch/v1 Job".to_owned()]), "{form}");
        }
        assert_eq!(names(""), Ok(vec![]));
    }

    #[test]
    fn what_is_no_dump_is_named() {
        for (text, want) in [
            ("{\"apiVersion\":\"v1\"", "neither JSON nor YAML"),
            ("hello", "document 1 is \"\\\"hello\\\"\""),
            (
                "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[{\"kind\":\"Pod\"},{}]}",
                "item 2 of document 1 has no kind",
            ),
            ("{\"kind\":\"Pod\"}", "item 1 of document 1 has no apiVersion"),
        ] {
            let error = names(text).unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
        let error = Dump::parse(vec![b'{', 0xff]).err().unwrap();
        assert_eq!(error.to_string(), "not UTF-8 text: the byte at 1 cannot be read");
    }
}
