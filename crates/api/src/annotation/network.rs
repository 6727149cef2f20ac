//! Network limits of pods and QoS classes: bits per second in, bytes per second out. Spec: api 5.10, 11.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::{Annotation, Empty, Fault, OnError, encode};
use crate::crd::wire::Omit;
use crate::gojson;
use crate::keys::pod::annotation::NETWORK_QOS;
use crate::quantity::{Quantity, QuantityError};

/// A rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BitsPerSecond(pub i64);

impl BitsPerSecond {
    /// Whole bytes per second, rounded down.
    pub fn bytes_trunc(self) -> i64 {
        self.0 / 8
    }
}

/// A value of a QoS class's networkQOS: percent of the node's bandwidth, or bits per second.
///
/// Differs: both forms are bits, so both are divided by 8 where bytes are wanted. Upstream forgets it
/// for percents in the terway file (api 11, item 7).
pub fn class_rate(value: &IntOrString, total: Quantity) -> Result<BitsPerSecond, QuantityError> {
    let bits = match value {
        IntOrString::Int(percent) => {
            let part = i128::from(total.value()) * i128::from(*percent) / 100;
            i64::try_from(part).unwrap_or(if part < 0 { i64::MIN } else { i64::MAX })
        }
        IntOrString::String(text) => text.parse::<Quantity>()?.value(),
    };
    Ok(BitsPerSecond(bits))
}

/// Limits of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetworkQos {
    #[serde(skip_serializing_if = "Omit::omit")]
    pub ingress_limit: Option<Quantity>,
    #[serde(skip_serializing_if = "Omit::omit")]
    pub egress_limit: Option<Quantity>,
}

/// As users write it: quantities in strings, never plain numbers.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Written {
    ingress_limit: String,
    egress_limit: String,
}

impl PodNetworkQos {
    /// 0 when there is no limit.
    pub fn ingress(&self) -> BitsPerSecond {
        BitsPerSecond(self.ingress_limit.unwrap_or_default().value())
    }

    /// 0 when there is no limit.
    pub fn egress(&self) -> BitsPerSecond {
        BitsPerSecond(self.egress_limit.unwrap_or_default().value())
    }
}

impl Annotation for PodNetworkQos {
    const KEY: &'static str = NETWORK_QOS;
    const EMPTY: Empty = Empty::Absent;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let written: Written = gojson::from_str(text)?;
        let side = |name: &str, text: &str| -> Result<Option<Quantity>, Fault> {
            if text.is_empty() {
                return Ok(None);
            }
            text.parse().map(Some).map_err(|error| Fault::Value(format!("{name}: {error}")))
        };
        Ok(PodNetworkQos {
            ingress_limit: side("ingressLimit", &written.ingress_limit)?,
            egress_limit: side("egressLimit", &written.egress_limit)?,
        })
    }

    fn text(&self) -> String {
        encode(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_limits() {
        let bytes = |text: &str| {
            let qos = PodNetworkQos::parse(text).ok()?;
            Some((qos.ingress().bytes_trunc(), qos.egress().bytes_trunc()))
        };
        for (key, text, want) in [
            ("api#10.39", r#"{"ingressLimit":"10M","egressLimit":"20M"}"#, Some((1_250_000, 2_500_000))),
            ("api#10.129 one side", r#"{"ingressLimit":"10M"}"#, Some((1_250_000, 0))),
            ("api#10.129 number", r#"{"ingressLimit":10,"egressLimit":"20M"}"#, None),
            ("api#10.129 case", r#"{"IngressLimit":"15","EGRESSLIMIT":"1Ki"}"#, Some((1, 128))),
            ("no quantity", r#"{"ingressLimit":"x"}"#, None),
        ] {
            assert_eq!(bytes(text), want, "{key}");
        }
        let text = r#"{"ingressLimit":"10M","egressLimit":"20M"}"#;
        assert_eq!(PodNetworkQos::parse(text).unwrap().text(), text);
        let fault = PodNetworkQos::parse(r#"{"egressLimit":"1X"}"#).unwrap_err().to_string();
        assert!(fault.starts_with("egressLimit: "), "{fault}");
    }

    #[test]
    fn class_values() {
        let total: Quantity = "600M".parse().unwrap();
        let rate = |value| class_rate(&value, total).unwrap();
        let (percent, bits) = (rate(IntOrString::Int(20)), rate(IntOrString::String("50M".into())));
        assert_eq!((percent.bytes_trunc(), bits.bytes_trunc()), (15_000_000, 6_250_000), "api#10.40 terway");
        assert_eq!((percent.0, bits.0), (120_000_000, 50_000_000), "api#10.40 tc");
        assert!(class_rate(&IntOrString::String("x".into()), total).is_err());
    }
}
