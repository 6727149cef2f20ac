//! Rules for one quota alone: amounts that make no sense. Spec: manager 17.4, self check.

use koord_api::annotation::Annotation;
use koord_api::annotation::quota::{MaxStrictCheckResourceKeys, SharedWeight};
use koord_api::crd::elastic_quota::ElasticQuota;
use koord_api::quantity::{Quantity, ResourceList};

use super::info::annotation_of;
use crate::webhook::denial::Denial;

pub(super) fn check(name: &str, quota: &ElasticQuota) -> Result<(), Denial> {
    let spec = quota.spec.clone().unwrap_or_default();
    not_negative(&spec.max, |names| format!("{name} quota.Spec.Max's value < 0, in dimensions :{names}"))?;
    not_negative(&spec.min, |names| format!("{name} quota.Spec.Min's value < 0, in dimensions :{names}"))?;
    check_shared_weight(name, annotation_of::<SharedWeight>(quota))?;
    for (key, min) in &spec.min {
        let Some(max) = spec.max.get(key) else {
            let text = "is included in min, which is not included in max";
            return Err(Denial::bad_request(format!("resourceKey {key} of quota {name} {text}")));
        };
        if min > max {
            return Err(Denial::bad_request(format!(
                "resourceKey {key} of quota {name} min {min} > max {max}"
            )));
        }
    }
    let used = quota.status.as_ref().map(|status| &status.used);
    check_strict(name, &spec.max, used, annotation_of::<MaxStrictCheckResourceKeys>(quota))
}

fn not_negative(amounts: &ResourceList, text: impl FnOnce(&str) -> String) -> Result<(), Denial> {
    let negative: Vec<&str> = amounts
        .iter()
        .filter(|(_, amount)| **amount < Quantity::ZERO)
        .map(|(name, _)| name.as_str())
        .collect();
    if negative.is_empty() {
        return Ok(());
    }
    Err(Denial::bad_request(text(&format!("[{}]", negative.join(" ")))))
}

fn check_shared_weight(name: &str, text: &str) -> Result<(), Denial> {
    if text.is_empty() {
        return Ok(());
    }
    let weight = SharedWeight::parse(text).map_err(|fault| Denial::bad_request(fault.to_string()))?;
    let key = SharedWeight::KEY;
    not_negative(&weight.0, |names| {
        format!("{name} quota.Annotation[{key}]'s value < 0, in dimension :{names}")
    })
}

/// Resources whose max may not be set below what is used already.
fn check_strict(
    name: &str,
    max: &ResourceList,
    used: Option<&ResourceList>,
    list: &str,
) -> Result<(), Denial> {
    if list.is_empty() {
        return Ok(());
    }
    let keys = MaxStrictCheckResourceKeys::parse(list).map_err(|fault| {
        let key = MaxStrictCheckResourceKeys::KEY;
        Denial::bad_request(format!("{name} quota.Annotation[{key}]'s value is invalid: {fault}"))
    })?;
    for key in &keys.0 {
        let Some(used) = used.and_then(|used| used.get(key)) else { continue };
        let Some(max) = max.get(key) else {
            let text = "is included in used, which is not included in max but should check max >= used";
            return Err(Denial::bad_request(format!("resourceKey {key} of quota {name} {text}")));
        };
        if max < used {
            return Err(Denial::bad_request(format!(
                "resourceKey {key} of quota {name} max {max} < used {used}"
            )));
        }
    }
    Ok(())
}
