//! Ratios of two decimals: how they are read and written, and exact amplification by them. Spec: api 5.4.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};

use super::{Annotation, Empty, Fault, OnError};
use crate::gojson::{self, Kind};
use crate::keys::node::annotation::{CPU_NORMALIZATION_RATIO, RESOURCE_AMPLIFICATION_RATIO};
use crate::keys::resource::{CPU, EPHEMERAL_STORAGE, MEMORY};
use crate::quantity::{Family, Quantity, ResourceList};

/// Ratios that are no further apart count as equal. Spec: manager 8.
const CLOSE: f64 = 0.01;

/// A finite number that is written with two decimals, and counts as what is written.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// None for NaN and the infinities.
    pub fn new(value: f64) -> Option<Ratio> {
        value.is_finite().then_some(Ratio(value))
    }

    pub fn value(self) -> f64 {
        self.0
    }

    /// The written number in hundredths.
    fn hundredths(self) -> i128 {
        let digits: String = self.to_string().chars().filter(|c| *c != '.').collect();
        digits.parse().unwrap_or(if self.0 < 0.0 { i128::MIN } else { i128::MAX })
    }

    /// Whether a ratio differs from a newer one by more than 0.01.
    ///
    /// Compared as binary floats, as upstream does: most ratios one hundredth apart are close, but not 2.01 and 2.02.
    pub fn differs(self, newer: Ratio) -> bool {
        self.0 > newer.0 + CLOSE || self.0 < newer.0 - CLOSE
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ratio, D::Error> {
        let value = f64::deserialize(deserializer)?;
        Ratio::new(value).ok_or_else(|| serde::de::Error::custom("a ratio must be a finite number"))
    }
}

/// `x` times the ratio, rounded up; `x` itself when the ratio is not above 1.
///
/// Differs: exact on the two decimals that are written. Upstream multiplies binary floats, so that
/// 100 by 1.1 gives 111.
pub fn amplify(x: i64, ratio: Ratio) -> i64 {
    let hundredths = ratio.hundredths();
    if hundredths <= 100 {
        return x;
    }
    let product = i128::from(x).saturating_mul(hundredths);
    let up = product.div_euclid(100) + i128::from(product.rem_euclid(100) != 0);
    i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
}

/// Ratios by which a node's allocatable is amplified.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct AmplificationRatios(pub BTreeMap<String, Ratio>);

impl Annotation for AmplificationRatios {
    const KEY: &'static str = RESOURCE_AMPLIFICATION_RATIO;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        Ok(gojson::from_str(text)?)
    }

    /// Written as a tree, which keeps the digits: 1.5 is written 1.50. No ratios are `null`.
    fn text(&self) -> String {
        let member =
            |(name, ratio): (&String, &Ratio)| (name.clone(), Kind::Number(ratio.to_string()).into());
        let kind =
            if self.0.is_empty() { Kind::Null } else { Kind::Object(self.0.iter().map(member).collect()) };
        gojson::Value::from(kind).to_string()
    }
}

impl AmplificationRatios {
    /// Refuses a ratio below 1, in upstream's words.
    pub fn validate(&self) -> Result<(), String> {
        match self.0.iter().find(|(_, ratio)| ratio.0 < 1.0) {
            Some((name, ratio)) => {
                Err(format!("ratio with resource type {name} and value {} is invalid", ratio.0))
            }
            None => Ok(()),
        }
    }

    /// Amplifies the named amounts: cpu in milli units, memory and ephemeral storage as bytes.
    pub fn amplify_list(&self, list: &mut ResourceList) {
        for (name, ratio) in &self.0 {
            let Some(amount) = list.get_mut(name).filter(|amount| !amount.is_zero()) else { continue };
            if ratio.hundredths() <= 100 {
                continue;
            }
            *amount = match name.as_str() {
                CPU => Quantity::cores_milli(amplify(amount.milli_value(), *ratio)),
                MEMORY | EPHEMERAL_STORAGE => Quantity::bytes(amplify(amount.value(), *ratio)),
                _ => Quantity::from_value(amplify(amount.value(), *ratio), Family::DecimalSi),
            };
        }
    }
}

/// How much faster a node's CPU is than the cluster's slowest; above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuNormalizationRatio(pub Ratio);

impl Annotation for CpuNormalizationRatio {
    const KEY: &'static str = CPU_NORMALIZATION_RATIO;
    const EMPTY: Empty = Empty::Broken;
    const ON_ERROR: OnError = OnError::Absent;

    fn parse(text: &str) -> Result<Self, Fault> {
        let failed =
            || Fault::Value(format!("parse cpu normalization ratio failed, err: invalid number {text:?}"));
        let ratio = parse_float(text).and_then(Ratio::new).ok_or_else(failed)?;
        // What is written 0.00 counts as 0.
        if ratio.hundredths() <= 0 {
            return Err(Fault::Value(format!("illegal cpu normalization ratio: {}", ratio.0)));
        }
        Ok(CpuNormalizationRatio(ratio))
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

/// A decimal number without spaces. Differs: words such as `NaN` and `Inf`, and numbers too large for
/// a float, are refused.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    if !is_number {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::{Annotations, read};

    fn ratio(value: f64) -> Ratio {
        Ratio::new(value).unwrap()
    }

    #[test]
    fn written_with_two_decimals() {
        for (value, want) in
            [(1.005, "1.00"), (1.115, "1.11"), (1.125, "1.12"), (1.135, "1.14"), (100.0, "100.00")]
        {
            assert_eq!(ratio(value).to_string(), want, "api#10.125 {value}");
        }
        let ratios = AmplificationRatios::parse(r#"{"cpu":3.1415926}"#).unwrap();
        assert_eq!(ratios.text(), r#"{"cpu":3.14}"#, "api#10.35");
        let text = r#"{"cpu":1.50,"memory":1.20}"#;
        assert_eq!(AmplificationRatios::parse(text).unwrap().text(), text);
        assert_eq!(AmplificationRatios::default().text(), "null");
        assert_eq!(Ratio::new(f64::NAN), None);
    }

    #[test]
    fn amplified_exactly() {
        for (key, x, by, want) in [
            ("scheduler-core#10.S29", 4000, 1.5, 6000),
            ("scheduler-core#10.S29", 1000, 1.22, 1220),
            ("scheduler-core#10.S63 exact, upstream 111", 100, 1.1, 110),
            ("scheduler-core#10.S63", 7, 1.1, 8),
            ("scheduler-core#10.S63", 100, 0.5, 100),
            ("api#10.36, scheduler-core#10.S63", 1001, 1.5, 1502),
            ("api#10.36", 100, 1.0, 100),
            ("api#10.36", 100, 0.5, 100),
            ("api#10.123 exact", 100, 1.1, 110),
            ("api#10.123", 1000, 1.1, 1100),
            ("api#10.123", 3000, 1.2, 3600),
            ("api#10.123", 0, 2.0, 0),
            ("no wrap", i64::MAX, 5.0, i64::MAX),
            ("huge", 2, 1e300, i64::MAX),
            ("toward zero for debts", -3, 1.5, -4),
        ] {
            assert_eq!(amplify(x, ratio(by)), want, "{key} {x} by {by}");
        }
    }

    #[test]
    fn amplified_list() {
        let mut list: ResourceList = [
            ("cpu", "1500m"),
            ("memory", "1Gi"),
            ("koordinator.sh/gpu-core", "50"),
            ("ephemeral-storage", "1G"),
            ("pods", "0"),
            ("other", "7"),
        ]
        .map(|(name, amount)| (name.to_string(), amount.parse().unwrap()))
        .into();
        let ratios = [
            ("cpu", 1.11),
            ("memory", 1.3),
            ("koordinator.sh/gpu-core", 1.01),
            ("ephemeral-storage", 1.5),
            ("pods", 2.0),
            ("absent", 2.0),
        ];
        AmplificationRatios(ratios.map(|(n, r)| (n.to_string(), ratio(r))).into()).amplify_list(&mut list);
        let got: Vec<String> = list.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        let want = [
            "cpu=1665m",
            "ephemeral-storage=1500000000",
            "koordinator.sh/gpu-core=51",
            "memory=1395864372",
            "other=7",
            "pods=0",
        ];
        assert_eq!(got, want, "api#10.124");
    }

    #[test]
    fn ratios_below_one_are_refused() {
        let ratios = AmplificationRatios::parse(r#"{"cpu":0.5}"#).unwrap();
        let want = "ratio with resource type cpu and value 0.5 is invalid";
        assert_eq!(ratios.validate().unwrap_err(), want);
        assert_eq!(AmplificationRatios::parse(r#"{"cpu":1}"#).unwrap().validate(), Ok(()));
    }

    #[test]
    fn cpu_normalization() {
        let parse =
            |text: &str| CpuNormalizationRatio::parse(text).map(|r| r.0.value()).map_err(|f| f.to_string());
        for (key, text, want) in [
            ("api#10.37", "0", Err("illegal cpu normalization ratio: 0")),
            ("api#10.37", "abc", Err("parse cpu normalization ratio failed, err: invalid number \"abc\"")),
            ("api#10.37", "1.2", Ok(1.2)),
            ("api#10.126", "-1", Err("illegal cpu normalization ratio: -1")),
            ("api#10.126", "", Err("parse cpu normalization ratio failed, err: invalid number \"\"")),
            ("written 0.00", "0.004", Err("illegal cpu normalization ratio: 0.004")),
            ("api#10.126", "1e1", Ok(10.0)),
            ("api#10.126", "+1.5", Ok(1.5)),
            ("api#10.126", "NaN", Err("parse cpu normalization ratio failed, err: invalid number \"NaN\"")),
            ("api#11.25", "Inf", Err("parse cpu normalization ratio failed, err: invalid number \"Inf\"")),
            (
                "too large",
                "1e999",
                Err("parse cpu normalization ratio failed, err: invalid number \"1e999\""),
            ),
        ] {
            assert_eq!(parse(text), want.map_err(str::to_string), "{key} {text:?}");
        }
        assert_eq!(read::<CpuNormalizationRatio>(&Annotations::new()), Ok(None), "api#10.37 absent");
        assert_eq!(CpuNormalizationRatio(ratio(1.2)).text(), "1.20");
    }

    #[test]
    fn close_ratios_are_equal() {
        for (key, a, b, want) in [
            ("api#10.127", 1.00, 1.01, false),
            ("api#10.127", 1.00, 1.02, true),
            ("api#10.127", 1.02, 1.01, false),
            ("api#10.37 epsilon", 1.20, 1.21, false),
            ("manager 8, as floats", 2.01, 2.02, true),
            ("manager 8, as floats", 2.02, 2.01, true),
            ("three decimals", 1.204, 1.215, true),
            ("three decimals, the same when written", 1.196, 1.204, false),
            ("three decimals, one hundredth apart", 1.204, 1.2139, false),
        ] {
            assert_eq!(ratio(a).differs(ratio(b)), want, "{key} {a} {b}");
        }
    }
}
