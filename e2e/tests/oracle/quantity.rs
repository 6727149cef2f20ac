//! Quantities against apimachinery's `resource` package.

use std::cmp::Ordering;

use koord_api::quantity::{Family, Quantity};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::random::Random;
use crate::{ask, ask_texts, random, report};

#[derive(Deserialize)]
struct Reply {
    error: Option<String>,
    amount: Option<Amount>,
}

#[derive(Deserialize)]
struct Amount {
    canonical: String,
    family: String,
    nano: String,
    value: i64,
    milli: i64,
}

/// What we should say; a field is none where upstream's answer is no guide.
#[derive(Debug)]
struct Wanted {
    nano: i128,
    canonical: Option<String>,
    family: Option<Family>,
    value: i64,
    milli: i64,
}

const NANO: i128 = 1_000_000_000;
/// The largest amount we keep.
const NANO_MAX: i128 = 10_i128.pow(38);

/// Upstream's answer with the faults that we do not share put right. These are all of them:
/// - amounts past 10^29 are kept there, for we count in 128 bits;
/// - `Value` and `MilliValue` stay at the limits of int64 instead of wrapping or turning 0;
/// - they round away from zero and count right below zero too, where upstream rounds up or wraps for
///   amounts that its 64-bit form cannot hold with all their digits;
/// - an amount that is a multiple of the step after the largest suffix (10^21, 2^70) still has a
///   suffix; upstream prints it without one, as another amount.
fn wanted(amount: &Amount) -> Wanted {
    let exact: Option<i128> = amount.nano.parse().ok();
    let limit = if amount.nano.starts_with('-') { -NANO_MAX } else { NANO_MAX };
    let nano = exact.map_or(limit, |exact| exact.clamp(-NANO_MAX, NANO_MAX));
    let is_kept = exact == Some(nano);
    let family = match amount.family.as_str() {
        "DecimalSI" => Family::DecimalSi,
        "BinarySI" => Family::BinarySi,
        "DecimalExponent" => Family::DecimalExponent,
        other => panic!("family {other}"),
    };
    let step = if family == Family::BinarySi { NANO << 70 } else { NANO * 10_i128.pow(21) };
    let has_suffix = family == Family::DecimalExponent || nano == 0 || nano % step != 0;
    let rounded = |upstream: i64, unit: i128| {
        let away = nano / unit + if nano % unit == 0 { 0 } else { nano.signum() };
        match i64::try_from(away) {
            Ok(_) if nano >= 0 => upstream,
            Ok(away) => away,
            Err(_) if away < 0 => i64::MIN,
            Err(_) => i64::MAX,
        }
    };
    Wanted {
        nano,
        canonical: (is_kept && has_suffix).then(|| amount.canonical.clone()),
        family: Some(family),
        value: rounded(amount.value, NANO),
        milli: rounded(amount.milli, NANO / 1000),
    }
}

/// How ours differs from what it should be.
fn difference(ours: Quantity, wanted: &Wanted) -> Option<String> {
    let text = ours.to_string();
    let same = ours.nano() == wanted.nano
        && wanted.canonical.as_ref().is_none_or(|canonical| *canonical == text)
        && wanted.family.is_none_or(|family| family == ours.family())
        && ours.value() == wanted.value
        && ours.milli_value() == wanted.milli
        && text.parse::<Quantity>().is_ok_and(|back| back == ours || ours.family() == Family::BinarySi);
    (!same)
        .then(|| format!("we say {text} {ours:?} {} {}, wanted {wanted:?}", ours.value(), ours.milli_value()))
}

#[test]
fn texts() {
    let (mut random, count) = random("quantity texts");
    let mut texts: Vec<String> = NASTY.iter().map(|text| (*text).to_owned()).collect();
    texts.extend((0..count).map(|_| quantity_text(&mut random)));
    let Some(replies) = ask_texts::<Reply>("quantity", &texts) else { return };
    let mut differences = Vec::new();
    let mut read = 0;
    for (text, reply) in texts.iter().zip(replies) {
        let found = match (text.parse::<Quantity>(), reply.error, reply.amount) {
            (Ok(ours), None, Some(amount)) => {
                read += 1;
                difference(ours, &wanted(&amount))
            }
            (Err(ours), Some(theirs), _) => {
                (ours.to_string() != theirs).then(|| format!("{ours} instead of {theirs}"))
            }
            // A suffix without any digit is 0; upstream refuses it for large suffixes only.
            (Ok(ours), Some(theirs), _) if theirs == "unable to parse numeric part of quantity" => {
                (!ours.is_zero() || text.contains(|c: char| c.is_ascii_digit() && !text.contains(['e', 'E'])))
                    .then(|| format!("{ours} instead of {theirs}"))
            }
            (ours, theirs, _) => Some(format!("{ours:?}, upstream's error is {theirs:?}")),
        };
        differences.extend(found.map(|found| format!("{text:?}: {found}")));
    }
    report(&differences);
    assert!(read * 3 > count, "most cases should be quantities, {read} were");
}

#[derive(Deserialize)]
struct PairReply {
    error: Option<String>,
    sum: Option<Amount>,
    difference: Option<Amount>,
    order: i32,
}

#[test]
fn sums_differences_and_order() {
    let (mut random, count) = random("quantity pairs");
    let mut pairs = Vec::new();
    while pairs.len() < count {
        let (a, b) = (quantity_text(&mut random), quantity_text(&mut random));
        let b = if random.once_in(10) { a.clone() } else { b };
        let is_small =
            |text: &str| text.parse::<Quantity>().is_ok_and(|amount| amount.nano().abs() < NANO_MAX / 10);
        if is_small(&a) && is_small(&b) {
            pairs.push((a, b));
        }
    }
    let requests: Vec<Value> = pairs.iter().map(|(a, b)| json!({"a": a, "b": b})).collect();
    let Some(replies) = ask::<PairReply>("quantity-pair", &requests) else { return };
    let mut differences = Vec::new();
    for ((a, b), reply) in pairs.iter().zip(replies) {
        let (Some(sum), Some(rest)) = (reply.sum, reply.difference) else {
            // Texts without a digit, of which the other test speaks.
            assert_eq!(reply.error.as_deref(), Some("unable to parse numeric part of quantity"), "{a} {b}");
            continue;
        };
        let (ours, theirs): (Quantity, Quantity) = (a.parse().expect(a), b.parse().expect(b));
        let order = match ours.cmp(&theirs) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        };
        if order != reply.order {
            differences.push(format!("{a} {b}: order {order} instead of {}", reply.order));
        }
        let found = difference(ours + theirs, &wanted(&sum)).map(|found| format!("{a} + {b}: {found}"));
        differences.extend(found);
        let found = difference(ours - theirs, &wanted(&rest)).map(|found| format!("{a} - {b}: {found}"));
        differences.extend(found);
    }
    report(&differences);
}

const SUFFIXES: [&str; 17] =
    ["", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const WRONG_SUFFIXES: [&str; 14] =
    ["K", "ki", "i", "mm", "e", "E-", "eE3", "Kii", "m3", "+3", " ", "Gib", "e1.5", "e99999999999999999999"];
const NASTY: [&str; 30] = [
    "",
    "0",
    "+",
    "-",
    ".",
    "-.",
    "+.m",
    ".Ti",
    ".Ei",
    "+Ei",
    ".e-10",
    "-0",
    "00",
    "0.0Gi",
    "0e5",
    "0x10",
    "--5",
    "1_000",
    "NaN",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "8Ei",
    "-8Ei",
    "7.99999999999999999999Ei",
    "1e18",
    "1e-9",
    "1e-10",
    "999999999999999999999999999999",
    "0.0000000001Ki",
];

/// A text of the grammar, now and then with a fault.
fn quantity_text(random: &mut Random) -> String {
    let mut text = random.pick(&["", "", "", "+", "-"]).to_owned();
    let most = *random.pick(&[&3, &6, &18, &20, &28]);
    text.push_str(&random.word("0123456789", most));
    if random.once_in(3) {
        text.push('.');
        text.push_str(&random.word("00123456789", most));
    }
    // Round numbers are where suffixes change.
    if random.once_in(4) {
        text.push_str(random.pick(&["000", "024", "000000", "0000000000000"]));
    }
    match random.below(12) {
        0..8 => text.push_str(random.pick(&SUFFIXES)),
        8..11 => {
            text.push_str(random.pick(&["e", "E"]));
            text.push_str(random.pick(&["", "+", "-"]));
            text.push_str(&random.below(24).to_string());
        }
        _ => text.push_str(random.pick(&WRONG_SUFFIXES)),
    }
    let text = random.spoil(text, " .-+eEimKM5x");
    // Upstream would compute for hours on a long exponent that still fits in an int64.
    let is_long = text.rsplit(['e', 'E']).next().is_some_and(|rest| (4..20).contains(&rest.len()));
    if is_long && text.contains(['e', 'E']) { "1".to_owned() } else { text }
}
