//! Quantities in JSON, in CRD schemas, and as Kubernetes' own wire type.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::{Family, Quantity, QuantityError};

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Accepts a string, a number, or null for zero.
    ///
    /// The newtype's name is that of Kubernetes' wire type: a deserializer that still has the text
    /// of a number hands it over as a string for this name, so that `1e3` keeps its family.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        deserializer.deserialize_newtype_struct("Quantity", Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"1500m\", \"2Gi\" or a number")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Quantity, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_value(value, Family::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
        Ok(Quantity::from_nano(i128::from(value) * super::NANO, Family::DecimalSi))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
        // Rust prints the shortest decimal text that reads back as the same number.
        value.to_string().parse().map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    /// Spec: crds 0.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            "x-kubernetes-int-or-string": true,
        })
    }
}

impl TryFrom<&WireQuantity> for Quantity {
    type Error = QuantityError;

    fn try_from(wire: &WireQuantity) -> Result<Quantity, QuantityError> {
        wire.0.trim().parse()
    }
}

impl From<Quantity> for WireQuantity {
    fn from(quantity: Quantity) -> WireQuantity {
        WireQuantity(quantity.to_string())
    }
}
