//! The worked examples of api 1.3, and laws that must hold for any quantity.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use proptest::prelude::*;

use super::*;
use crate::gojson;

fn q(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Text, canonical text, `value()`, `milli_value()`; none where the spec names no number.
type Reading = (&'static str, &'static str, Option<i64>, Option<i64>);

#[track_caller]
fn check(key: &str, readings: &[Reading]) {
    for (text, canonical, value, milli) in readings {
        let amount = q(text);
        assert_eq!(amount.to_string(), *canonical, "{key} {text}");
        if let Some(value) = value {
            assert_eq!(amount.value(), *value, "{key} value of {text}");
        }
        if let Some(milli) = milli {
            assert_eq!(amount.milli_value(), *milli, "{key} milli value of {text}");
        }
    }
}

const fn full(text: &'static str, canonical: &'static str, value: i64, milli: i64) -> Reading {
    (text, canonical, Some(value), Some(milli))
}

const fn shown(text: &'static str, canonical: &'static str) -> Reading {
    (text, canonical, None, None)
}

const fn valued(text: &'static str, canonical: &'static str, value: i64) -> Reading {
    (text, canonical, Some(value), None)
}

#[test]
fn decimal_texts() {
    check("api#1.3.Q1", &[full("1000m", "1", 1, 1000)]);
    check("api#1.3.Q2", &[full("1500m", "1500m", 2, 1500), full("1.5", "1500m", 2, 1500)]);
    check("api#1.3.Q3", &[full("0.5", "500m", 1, 500), full(".5", "500m", 1, 500)]);
    check(
        "api#1.3.Q4",
        &[full("5.", "5", 5, 5000), full("+5", "5", 5, 5000), full("00012", "12", 12, 12000)],
    );
    check(
        "api#1.3.Q5",
        &[
            shown("1000", "1k"),
            shown("1500", "1500"),
            shown("1001", "1001"),
            shown("1000000", "1M"),
            shown("1.5k", "1500"),
        ],
    );
    check("api#1.3.Q6", &[shown("1024", "1024"), shown("123456789", "123456789")]);
    check("api#10.82", &[shown("0.1", "100m")]);
}

#[test]
fn binary_texts() {
    check(
        "api#1.3.Q7",
        &[
            shown("1024Mi", "1Gi"),
            shown("2.5Gi", "2560Mi"),
            shown("1536Mi", "1536Mi"),
            shown("1000Ki", "1000Ki"),
            shown("1024Gi", "1Ti"),
        ],
    );
    check(
        "api#1.3.Q8",
        &[
            valued("0.5Ki", "512", 512),
            valued("1.5Ki", "1536", 1536),
            valued("0.5Mi", "512Ki", 524_288),
            valued("1.0Gi", "1Gi", 1_073_741_824),
        ],
    );
    check(
        "api#1.3.Q9",
        &[
            full("0.1Ki", "102400m", 103, 102_400),
            full("0.1Gi", "107374182400m", 107_374_183, 107_374_182_400),
            full("1.1Mi", "1153433600m", 1_153_434, 1_153_433_600),
        ],
    );
    check("api#1.3.Q10", &[full("3.0001Gi", "3221332846182400u", 3_221_332_847, 3_221_332_846_183)]);
    check("api#10.83", &[shown("1536Mi", "1536Mi")]);
    check("api#10.84", &[shown("2048Mi", "2Gi")]);
}

#[test]
fn exponent_texts() {
    check(
        "api#1.3.Q11",
        &[
            valued("1e3", "1e3", 1000),
            valued("1e4", "10e3", 10_000),
            valued("10e2", "1e3", 1000),
            valued("1.5e3", "1500", 1500),
            valued("1e2", "100", 100),
        ],
    );
    check(
        "api#1.3.Q12",
        &[
            full("1e-1", "100e-3", 1, 100),
            full("15e-1", "1500e-3", 2, 1500),
            full("123e-1", "12300e-3", 13, 12_300),
            full("1e-3", "1e-3", 1, 1),
        ],
    );
    check(
        "api#1.3.Q13",
        &[
            valued("1E", "1E", 1_000_000_000_000_000_000),
            valued("1.5E", "1500P", 1_500_000_000_000_000_000),
            valued("1E2", "100", 100),
        ],
    );
    check("upstream repeats these", &[valued("1E3", "1e3", 1000), valued("1e+3", "1e3", 1000)]);
}

#[test]
fn fine_and_negative_texts() {
    check(
        "api#1.3.Q14",
        &[
            full("1n", "1n", 1, 1),
            full("0.1n", "1n", 1, 1),
            full("0.0000000001", "1n", 1, 1),
            full("1e-10", "1e-9", 1, 1),
        ],
    );
    check("api#1.3.Q15", &[full("1.0000000001", "1000000001n", 2, 1001)]);
    check(
        "api#1.3.Q16",
        &[
            full("1500u", "1500u", 1, 2),
            full("0.0015", "1500u", 1, 2),
            full("1000u", "1m", 1, 1),
            full("1.2345", "1234500u", 2, 1235),
        ],
    );
    check(
        "api#1.3.Q17",
        &[
            full("-0.5", "-500m", -1, -500),
            full("-1500m", "-1500m", -2, -1500),
            full("-1500u", "-1500u", -1, -2),
            full("-1.5Ki", "-1536", -1536, -1_536_000),
            full("-0", "0", 0, 0),
        ],
    );
    check("api#1.3.Q18", &["0Gi", "0m", "+", "-", "."].map(|text| full(text, "0", 0, 0)));
}

#[test]
fn wrong_texts() {
    let long = "quantities must match the regular expression \
                '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    for (key, texts, message) in [
        (
            "api#1.3.Q19",
            &["", " 1", "1 ", "1 Gi", "1GB", "1KI", "0x10", "1_000", "1,5", "1e1.5", "1.2.3", "NaN"][..],
            long,
        ),
        ("api#1.3.Q20", &["1K", "1ki", "1i", "1mm", "1e", "--5"][..], "unable to parse quantity's suffix"),
        ("exponent past 64 bits", &["1e9223372036854775808", "1e-"][..], "unable to parse quantity's suffix"),
    ] {
        for text in texts {
            let error = text.parse::<Quantity>().expect_err(text);
            assert_eq!(error.to_string(), message, "{key} {text:?}");
        }
    }
}

#[test]
fn limits() {
    check(
        "api#1.3.Q21",
        &[
            valued("9223372036854775807", "9223372036854775807", i64::MAX),
            valued("7Ei", "7Ei", 7 << 60),
            valued("16Ei", "9223372036854775807", i64::MAX),
        ],
    );
    check(
        "values saturate",
        &[
            full("1E", "1E", 1_000_000_000_000_000_000, i64::MAX),
            full("8Ei", "9223372036854775807", i64::MAX, i64::MAX),
            full("-16Ei", "-9223372036854775807", -i64::MAX, i64::MIN),
            full("-10E", "-10E", i64::MIN, i64::MIN),
            full("10E", "10E", i64::MAX, i64::MAX),
            full("1000000E", "1000000E", i64::MAX, i64::MAX),
            full("1e28", "10e27", i64::MAX, i64::MAX),
            full("1e29", "100e27", i64::MAX, i64::MAX),
            full("1e999999999999", "100e27", i64::MAX, i64::MAX),
            full("-2e29", "-100e27", i64::MIN, i64::MIN),
            full("0e999999999999", "0", 0, 0),
            full("1e-999999999999", "1e-9", 1, 1),
            full("0.99999999999999999999Ki", "1Ki", 1024, 1_024_000),
            full("0.0000000000000000000000001Ki", "1n", 1, 1),
        ],
    );
    let most = q("1e29");
    assert_eq!(most + most, most);
    assert_eq!(-most - most, -most);
}

#[test]
fn built_from_integers() {
    let built = |values: &[i64], family| {
        values.iter().map(|value| Quantity::from_value(*value, family).to_string()).collect::<Vec<_>>()
    };
    assert_eq!(
        built(&[1000, 1023, 1024, 1500, 2000, 1_000_000_000], Family::BinarySi),
        ["1k", "1023", "1Ki", "1500", "2000", "1000000000"],
        "api#1.3.Q22"
    );
    let mut texts = built(&[1024, 2000, 1 << 30], Family::DecimalSi);
    texts.push(Quantity::cores_milli(2000).to_string());
    texts.push(Quantity::from_milli(2_048_000, Family::BinarySi).to_string());
    assert_eq!(texts, ["1024", "2k", "1073741824", "2", "2Ki"], "api#1.3.Q23");
    assert_eq!(Quantity::bytes(16 << 30).to_string(), "16Gi");
}

#[test]
fn sums_and_differences() {
    for (key, a, b, sum) in [
        ("api#1.3.Q24", "0", "1Gi", "1Gi"),
        ("api#1.3.Q24", "1", "1Gi", "1073741825"),
        ("api#1.3.Q24", "1Gi", "1", "1073741825"),
        ("api#1.3.Q24", "1Gi", "1G", "2073741824"),
        ("api#1.3.Q24", "0Gi", "500m", "500m"),
        ("api#1.3.Q24", "1Ki", "24", "1048"),
        ("family of the first", "1Gi", "1073741824", "2Gi"),
        ("family of the first", "1073741824", "1Gi", "2147483648"),
    ] {
        assert_eq!((q(a) + q(b)).to_string(), sum, "{key} {a} + {b}");
    }
    for (a, b, difference) in
        [("0", "1Gi", "-1Gi"), ("1", "1500m", "-500m"), ("2Gi", "1G", "1147483648"), ("1Gi", "1Gi", "0")]
    {
        assert_eq!((q(a) - q(b)).to_string(), difference, "api#1.3.Q25 {a} - {b}");
    }
    assert_eq!(["1Gi", "1Gi"].map(q).into_iter().sum::<Quantity>().to_string(), "2Gi");
}

#[test]
fn comparison_is_by_value() {
    for (a, b, order) in [
        ("1", "1000m", Ordering::Equal),
        ("1Gi", "1073741824", Ordering::Equal),
        ("1e3", "1k", Ordering::Equal),
        ("1G", "1Gi", Ordering::Less),
    ] {
        assert_eq!(q(a).cmp(&q(b)), order, "api#1.3.Q26 {a} {b}");
    }
    assert_eq!(HashSet::from([q("1Gi"), q("1073741824")]).len(), 1);
}

#[test]
fn json() {
    for (key, json, text) in [
        ("api#1.3.Q27", "1.5", "1500m"),
        ("api#1.3.Q27", "100", "100"),
        ("api#1.3.Q27", "\" 1 \"", "1"),
        ("api#1.3.Q27", "1e3", "1e3"),
        ("null is zero", "null", "0"),
    ] {
        let amount: Quantity = gojson::from_str(json).expect(json);
        assert_eq!(gojson::to_string(&amount).expect(json), format!("\"{text}\""), "{key} {json}");
        // Plain serde_json has lost the text of a number, and with it the family; the value is there.
        assert_eq!(serde_json::from_str::<Quantity>(json).expect(json), amount, "{key} {json}");
    }
    for json in ["true", "\"\"", "[]", "{}", "\"1 Gi\""] {
        assert!(gojson::from_str::<Quantity>(json).is_err(), "api#1.3.Q27 {json}");
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "api#1.3.Q27 {json}");
    }
    assert_eq!(serde_json::from_str::<Option<Quantity>>("null").unwrap(), None);
    assert_eq!(serde_json::from_str::<Quantity>("18446744073709551615").unwrap(), q("18446744073709551615"));
}

#[test]
fn kubernetes_wire_type() {
    let wire = WireQuantity("1024Mi".into());
    let amount = Quantity::try_from(&wire).unwrap();
    assert_eq!(WireQuantity::from(amount), WireQuantity("1Gi".into()));
    assert_eq!(Quantity::try_from(&WireQuantity("x".into())), Err(QuantityError::Format));
}

#[test]
fn schema() {
    let schema = schemars::SchemaGenerator::default().into_root_schema_for::<Quantity>();
    let schema = schema.as_value();
    assert_eq!(schema["x-kubernetes-int-or-string"], true);
    assert_eq!(schema["anyOf"], serde_json::json!([{"type": "integer"}, {"type": "string"}]));
    assert!(schema["pattern"].as_str().unwrap().starts_with(r"^(\+|-)?("));
}

fn any_family() -> impl Strategy<Value = Family> {
    prop_oneof![Just(Family::DecimalSi), Just(Family::BinarySi), Just(Family::DecimalExponent)]
}

fn any_quantity() -> impl Strategy<Value = Quantity> {
    let nano = prop_oneof![
        -NANO_MAX..=NANO_MAX,
        (-2000_i128..2000).prop_map(|units| units * NANO),
        any::<i64>().prop_map(i128::from),
        any::<i64>().prop_map(|units| i128::from(units) * NANO),
        (0_u32..64, -3_i128..4).prop_map(|(bits, plus)| ((1_i128 << bits) + plus) * NANO),
    ];
    (nano, any_family()).prop_map(|(nano, family)| Quantity::from_nano(nano, family))
}

proptest! {
    #[test]
    fn reading_what_was_written_gives_the_value_back(amount in any_quantity()) {
        let text = amount.to_string();
        let back = q(&text);
        // A binary text is capped at 2^63 - 1 on reading, as in Kubernetes.
        if !text.ends_with('i') || amount.nano().abs() < i128::from(i64::MAX) * NANO {
            prop_assert_eq!(back, amount);
            prop_assert_eq!(back.to_string(), text);
        }
    }

    #[test]
    fn any_text_reads_or_fails_cleanly(text in "[-+]?[0-9.]{0,45}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,25}") {
        if let Ok(amount) = text.parse::<Quantity>() {
            prop_assert_eq!(q(&amount.to_string()), amount);
        }
    }

    #[test]
    fn fast_and_slow_reading_agree(whole in "[0-9]{0,9}", fraction in "[0-9]{0,9}", exponent in -12_i64..25) {
        let zeros = exponent + 9 - i64::try_from(fraction.len()).unwrap();
        let slow = parse::decimal_slow(whole.as_bytes(), fraction.as_bytes(), zeros);
        prop_assert_eq!(parse::decimal(whole.as_bytes(), fraction.as_bytes(), exponent), slow);
    }

    #[test]
    fn whole_values_round_away_from_zero(milli in any::<i64>()) {
        let value = Quantity::cores_milli(milli).value();
        prop_assert_eq!(Quantity::cores_milli(milli).milli_value(), milli);
        prop_assert!(i128::from(value).abs() * 1000 >= i128::from(milli).abs());
        prop_assert!((i128::from(value).abs() - 1) * 1000 < i128::from(milli).abs() || milli == 0);
    }

    #[test]
    fn addition_undoes_subtraction(a in any::<i64>(), b in any::<i64>()) {
        let (a, b) = (Quantity::bytes(a), Quantity::cores_milli(b));
        prop_assert_eq!(a - b + b, a);
        prop_assert_eq!(a + -b, a - b);
    }
}
