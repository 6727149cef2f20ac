//! How our objects look in JSON: three small macros and the rules they share.
//!
//! Every struct here reads absent fields as empty and leaves empty ones out again, as upstream's
//! writers do: `Option`, `Vec`, maps and `String` are omitted when empty, numbers and booleans
//! that are not `Option` are always written. Where a schema requires fields that may be empty,
//! only `None` is omitted.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use crate::duration::GoDuration;
use crate::quantity::Quantity;

/// Whether a field is left out of the JSON.
pub(crate) trait Omit {
    fn omit(&self) -> bool {
        false
    }

    /// The same where empty text and lists are written.
    fn omit_none(&self) -> bool {
        false
    }
}

impl<T> Omit for Option<T> {
    fn omit(&self) -> bool {
        self.is_none()
    }

    fn omit_none(&self) -> bool {
        self.is_none()
    }
}

impl<T> Omit for Vec<T> {
    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Omit for BTreeMap<K, V> {
    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl Omit for String {
    fn omit(&self) -> bool {
        self.is_empty()
    }
}

impl Omit for ObjectMeta {
    fn omit(&self) -> bool {
        *self == ObjectMeta::default()
    }
}

impl Omit for bool {}
impl Omit for i32 {}
impl Omit for i64 {}
impl Omit for Quantity {}
impl Omit for GoDuration {}

/// Reads an empty string as absent, for fields where upstream does not tell the two apart.
pub(crate) fn empty_as_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

/// Declares structs that are part of an object: camelCase, absent reads as empty, empty is omitted.
macro_rules! wire {
    ($($tokens:tt)*) => { crate::crd::wire::wire_fields! { "crate::crd::wire::Omit::omit", $($tokens)* } };
}
pub(crate) use wire;

/// As `wire!`, but only `None` is omitted: for structs whose schema requires fields.
macro_rules! wire_required {
    ($($tokens:tt)*) => { crate::crd::wire::wire_fields! { "crate::crd::wire::Omit::omit_none", $($tokens)* } };
}
pub(crate) use wire_required;

macro_rules! wire_fields {
    ($omit:literal, $(
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$field_meta:meta])* pub $field:ident : $ty:ty ),* $(,)? }
    )*) => { $(
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, rename_all = "camelCase", expecting = "an object")]
        $(#[$meta])*
        pub struct $name {
            $(
                $(#[$field_meta])*
                #[serde(skip_serializing_if = $omit)]
                pub $field: $ty,
            )*
        }

        impl crate::crd::wire::Omit for $name {}
    )* };
}
pub(crate) use wire_fields;

/// Declares a set of known words on an open wire: an unknown word survives a round trip as `Other`.
macro_rules! open_enum {
    ($(
        $(#[$meta:meta])*
        pub enum $name:ident { $( $(#[$variant_meta:meta])* $variant:ident = $text:literal ),* $(,)? }
    )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_meta])* $variant, )*
            /// A word that we do not know, kept as it came.
            Other(String),
        }

        impl $name {
            /// The words that we know, in order.
            pub const KNOWN: &'static [$name] = &[$( $name::$variant ),*];

            /// The word on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $( $name::$variant => $text, )*
                    $name::Other(text) => text,
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $name::Other(String::new())
            }
        }

        impl crate::crd::wire::Omit for $name {
            fn omit(&self) -> bool {
                self.as_str().is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( $text => $name::$variant, )*
                    _ => $name::Other(text.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name::from(text.as_str())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer).map($name::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    )* };
}
pub(crate) use open_enum;

/// Declares a whole object: `metadata` and the given fields, with the traits of `k8s_openapi`.
///
/// `apiVersion` and `kind` are written always, and checked on read when they are there.
macro_rules! object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident = $group:literal / $version:literal, $plural:literal, $scope:ident {
            $( $(#[$field_meta:meta])* pub $field:ident : $ty:ty ),* $(,)?
        }
    ) => {
        #[derive(Clone, Debug, Default, PartialEq, schemars::JsonSchema)]
        #[schemars(default, rename_all = "camelCase")]
        $(#[$meta])*
        pub struct $name {
            #[schemars(schema_with = "crate::crd::schema::object_meta")]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $( $(#[$field_meta])* pub $field: $ty, )*
        }

        const _: () = {
            #[derive(serde::Deserialize)]
            #[serde(rename_all = "camelCase", expecting = "an object")]
            struct Read {
                #[serde(default)]
                api_version: Option<String>,
                #[serde(default)]
                kind: Option<String>,
                #[serde(default)]
                metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                $( #[serde(default)] $field: $ty, )*
            }

            #[derive(serde::Serialize)]
            #[serde(rename_all = "camelCase")]
            struct Write<'a> {
                api_version: &'static str,
                kind: &'static str,
                metadata: &'a k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                $( #[serde(skip_serializing_if = "Option::is_none")] $field: Option<&'a $ty>, )*
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let read = Read::deserialize(deserializer)?;
                    crate::crd::wire::expect_type::<$name, D::Error>(&read.api_version, &read.kind)?;
                    Ok($name { metadata: read.metadata, $( $field: read.$field, )* })
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serde::Serialize::serialize(
                        &Write {
                            api_version: <$name as k8s_openapi::Resource>::API_VERSION,
                            kind: <$name as k8s_openapi::Resource>::KIND,
                            metadata: &self.metadata,
                            $( $field: (!crate::crd::wire::Omit::omit_none(&self.$field)).then_some(&self.$field), )*
                        },
                        serializer,
                    )
                }
            }

            impl k8s_openapi::Resource for $name {
                const API_VERSION: &'static str = concat!($group, "/", $version);
                const GROUP: &'static str = $group;
                const KIND: &'static str = stringify!($name);
                const VERSION: &'static str = $version;
                const URL_PATH_SEGMENT: &'static str = $plural;
                type Scope = k8s_openapi::$scope;
            }

            impl k8s_openapi::ListableResource for $name {
                const LIST_KIND: &'static str = concat!(stringify!($name), "List");
            }

            impl k8s_openapi::Metadata for $name {
                type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

                fn metadata(&self) -> &Self::Ty {
                    &self.metadata
                }

                fn metadata_mut(&mut self) -> &mut Self::Ty {
                    &mut self.metadata
                }
            }
        };
    };
}
pub(crate) use object;

/// Refuses an object of another type. Items of a list may come without `apiVersion` and `kind`.
pub(crate) fn expect_type<K, E>(api_version: &Option<String>, kind: &Option<String>) -> Result<(), E>
where
    K: k8s_openapi::Resource,
    E: serde::de::Error,
{
    let differs =
        |got: &Option<String>, want: &str| got.as_deref().is_some_and(|got| !got.is_empty() && got != want);
    if differs(api_version, K::API_VERSION) || differs(kind, K::KIND) {
        return Err(E::custom(format_args!(
            "the object is {} {}, expected {} {}",
            api_version.as_deref().unwrap_or_default(),
            kind.as_deref().unwrap_or_default(),
            K::API_VERSION,
            K::KIND,
        )));
    }
    Ok(())
}
