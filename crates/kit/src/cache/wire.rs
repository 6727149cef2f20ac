//! List pages and watch lines as the server writes them, taken apart object by object. Pure.
//!
//! An object's JSON is cut out first and decoded on its own, so one that cannot be read costs only itself. The API
//! server stores values that typed decoders refuse (a Duration of `abc`, an int32 of 3000000000), so this happens.

use std::borrow::Cow;
use std::sync::Arc;

use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::pool::Pool;
use super::store::{ObjectKey, Uid, Version};

/// One page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<'p> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'p RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    #[serde(default)]
    pub(crate) resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    pub(crate) next: Option<String>,
}

/// One line of a watch.
#[derive(Debug, PartialEq)]
pub(crate) enum Line<'l> {
    /// The object is new or changed.
    Applied(&'l str),
    Deleted(&'l str),
    /// Everything up to this version has been sent.
    Bookmark(u64),
    /// The server ends the watch with a status.
    Refused {
        code: u16,
        message: String,
    },
    /// Neither of these; the text says what is wrong with it.
    Broken(String),
}

#[derive(Deserialize)]
struct RawLine<'l> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'l RawValue,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl<'l> Line<'l> {
    /// The object of a line that is written as all API servers write it, cut out unseen: whoever reads it as one whole
    /// value finds out whether there was more.
    pub(crate) fn applied_unseen(text: &'l str) -> Option<&'l str> {
        let rest = text.strip_prefix("{\"type\":\"")?;
        let rest = rest.strip_prefix("MODIFIED").or_else(|| rest.strip_prefix("ADDED"))?;
        rest.strip_prefix("\",\"object\":")?.trim_end_matches('\n').strip_suffix('}')
    }

    pub(crate) fn parse(text: &'l str) -> Line<'l> {
        let line: RawLine<'l> = match serde_json::from_str(text) {
            Ok(line) => line,
            Err(error) => return Line::Broken(error.to_string()),
        };
        let object = line.object.get();
        match line.kind.as_str() {
            "ADDED" | "MODIFIED" => Line::Applied(object),
            "DELETED" => Line::Deleted(object),
            "BOOKMARK" => match Head::parse(object).and_then(|head| head.resource_version) {
                Some(version) => Line::Bookmark(version),
                None => Line::Broken("bookmark without a resourceVersion".to_owned()),
            },
            "ERROR" => {
                let status: RawStatus = serde_json::from_str(object).unwrap_or_default();
                Line::Refused { code: status.code, message: status.message }
            }
            other => Line::Broken(format!("unknown event type {other:?}")),
        }
    }
}

/// What can be read of any object, however broken the rest is.
#[derive(Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: Option<u64>,
}

impl Head {
    pub(crate) fn parse(object: &str) -> Option<Head> {
        #[derive(Deserialize)]
        struct Outer {
            metadata: Meta,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Meta {
            #[serde(default)]
            namespace: Option<String>,
            #[serde(default)]
            name: Option<String>,
            #[serde(default)]
            uid: Option<String>,
            #[serde(default)]
            resource_version: Option<String>,
        }
        let Outer { metadata } = serde_json::from_str(object).ok()?;
        Some(Head {
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.and_then(|text| text.parse().ok()),
        })
    }

    pub(crate) fn version(&self) -> Option<Version> {
        Some(Version { uid: Uid::of(&self.uid), resource_version: self.resource_version? })
    }
}

/// An object taken in.
pub(crate) struct Decoded<V> {
    pub(crate) key: ObjectKey,
    pub(crate) version: Version,
    pub(crate) value: V,
}

/// Turns an object's JSON into what the cache keeps of it.
pub(crate) type Decoder<V> = Arc<dyn Fn(&str) -> Result<Decoded<V>, String> + Send + Sync>;

/// The object without the list of who set which field, which would be half of the work and then dropped. The server
/// writes it without blanks; in any other form it stays. Quotes inside strings are escaped, so what is found is a key.
fn without_managed_fields(text: &str) -> Cow<'_, str> {
    const KEY: &str = "\"managedFields\":[";
    let Some((before, rest)) = text.split_once(KEY) else { return Cow::Borrowed(text) };
    let (mut depth, mut is_string, mut is_escaped) = (1_usize, false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            b'[' if !is_string => depth += 1,
            b']' if !is_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Cow::Owned([before, KEY, &rest[at..]].concat());
        }
    }
    Cow::Borrowed(text)
}

/// A decoder for kind `K`: managed fields are dropped, then `project` keeps what the owner needs.
pub(crate) fn decoder<K, V>(project: impl Fn(&ObjectKey, K) -> V + Send + Sync + 'static) -> Decoder<V>
where
    K: Resource + DeserializeOwned,
{
    let namespaces = Pool::default();
    Arc::new(move |text| {
        let mut object: K =
            serde_json::from_str(&without_managed_fields(text)).map_err(|error| error.to_string())?;
        let meta = object.meta_mut();
        meta.managed_fields = None;
        let name = meta.name.as_deref().filter(|name| !name.is_empty()).ok_or("metadata.name is missing")?;
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let resource_version = version
            .parse()
            .map_err(|_| format!("metadata.resourceVersion {version:?} is not a decimal number"))?;
        let key = ObjectKey {
            namespace: namespaces.text(meta.namespace.as_deref().unwrap_or_default()),
            name: Arc::from(name),
        };
        let uid = Uid::of(meta.uid.as_deref().unwrap_or_default());
        let value = project(&key, object);
        Ok(Decoded { key, version: Version { uid, resource_version }, value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[test]
    fn managed_fields_are_cut_out_before_decoding() {
        for (text, want) in [
            (r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":{"name":"a"}}"#),
            (
                r#"{"metadata":{"managedFields":[{"f:x":{"k:{\"name\":\"]\"}":[[]]}}],"name":"a"}}"#,
                r#"{"metadata":{"managedFields":[],"name":"a"}}"#,
            ),
            (
                r#"{"metadata":{"annotations":{"x":"\"managedFields\":["},"name":"a"}}"#,
                r#"{"metadata":{"annotations":{"x":"\"managedFields\":["},"name":"a"}}"#,
            ),
            (r#"{"metadata":{"managedFields":[{"#, r#"{"metadata":{"managedFields":[{"#),
            (r#"{"metadata":{"managedFields":["\\"]}}"#, r#"{"metadata":{"managedFields":[]}}"#),
        ] {
            assert_eq!(without_managed_fields(text), want);
        }
    }

    #[test]
    fn lines_are_told_apart() {
        let pod = r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#;
        for (name, text, want) in [
            ("added", format!(r#"{{"type":"ADDED","object":{pod}}}"#), Line::Applied(pod)),
            ("any order", format!(r#"{{"object":{pod},"type":"MODIFIED"}}"#), Line::Applied(pod)),
            ("deleted", format!(r#"{{"type":"DELETED","object":{pod}}}"#), Line::Deleted(pod)),
            ("bookmark", format!(r#"{{"type":"BOOKMARK","object":{pod}}}"#), Line::Bookmark(7)),
            (
                "error",
                r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#.to_owned(),
                Line::Refused { code: 410, message: "too old".to_owned() },
            ),
            (
                "a status that is none",
                r#"{"type":"ERROR","object":3}"#.to_owned(),
                Line::Refused { code: 0, message: String::new() },
            ),
            (
                "unknown",
                format!(r#"{{"type":"X","object":{pod}}}"#),
                Line::Broken("unknown event type \"X\"".to_owned()),
            ),
        ] {
            assert_eq!(Line::parse(&text), want, "{name}");
        }
        assert!(matches!(Line::parse("{\"type\":\"ADDED\",\"obj"), Line::Broken(_)));
        for kind in ["ADDED", "MODIFIED"] {
            let line = format!("{{\"type\":\"{kind}\",\"object\":{pod}}}\n");
            assert_eq!(Line::applied_unseen(&line), Some(pod));
        }
        for other in [
            format!(r#"{{"object":{pod},"type":"MODIFIED"}}"#),
            format!(r#"{{"type":"DELETED","object":{pod}}}"#),
            format!(r#"{{"type": "ADDED","object":{pod}}}"#),
        ] {
            assert_eq!(Line::applied_unseen(&other), None, "{other}");
        }
        let more = format!(r#"{{"type":"ADDED","object":{pod},"more":{{}}}}"#);
        let decode = decoder::<Pod, _>(|_, pod| pod);
        assert!(
            Line::applied_unseen(&more).is_some_and(|object| decode(object).is_err()),
            "more than one value"
        );
    }

    #[test]
    fn a_broken_object_keeps_its_name() {
        let decode = decoder::<Pod, _>(|_, pod| pod);
        let text = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"9"},"spec":{"priority":3000000000}}"#;
        let error = decode(text).err().unwrap();
        assert!(error.contains("3000000000"), "{error}");
        let head = Head::parse(text).unwrap();
        assert_eq!((head.namespace.as_str(), head.name.as_str(), head.resource_version), ("n", "a", Some(9)));
        assert_eq!(Head::parse("[]"), None);
    }

    #[test]
    fn managed_fields_are_dropped_and_versions_must_be_numbers() {
        let decode = decoder::<Pod, _>(|_, pod| pod);
        let text =
            r#"{"metadata":{"name":"a","resourceVersion":"9","managedFields":[{"manager":"kubectl"}]}}"#;
        assert_eq!(decode(text).ok().unwrap().value.metadata.managed_fields, None);
        assert_eq!(
            decode(r#"{"metadata":{"name":"a","resourceVersion":"x9"}}"#).err().unwrap(),
            "metadata.resourceVersion \"x9\" is not a decimal number"
        );
        assert_eq!(
            decode(r#"{"metadata":{"resourceVersion":"9"}}"#).err().unwrap(),
            "metadata.name is missing"
        );
    }
}
