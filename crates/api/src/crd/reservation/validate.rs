//! What a reservation must have before a scheduler looks at it. Spec: crds 1.3.

use super::owner::{OwnerError, OwnerMatcher};
use super::{Reservation, ReservationSpec};

/// Why a reservation is not scheduled. The texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReservation {
    #[error("the reservation is nil")]
    Missing,
    #[error("the reservation misses the template spec")]
    NoTemplate,
    #[error("the reservation misses the owner spec")]
    NoOwners,
    #[error("the reservation misses the expiration spec")]
    NoExpiration,
    #[error(transparent)]
    Owners(#[from] OwnerError),
}

/// A reservation that has everything a scheduler needs.
#[derive(Clone, Debug)]
pub struct ValidReservation<'a> {
    pub reservation: &'a Reservation,
    pub spec: &'a ReservationSpec,
    pub owners: OwnerMatcher,
}

/// Checks in upstream's order; the first fault counts.
pub fn validate(reservation: Option<&Reservation>) -> Result<ValidReservation<'_>, InvalidReservation> {
    let reservation = reservation.ok_or(InvalidReservation::Missing)?;
    let spec = reservation.spec.as_ref().ok_or(InvalidReservation::NoTemplate)?;
    if spec.template.is_none() {
        return Err(InvalidReservation::NoTemplate);
    }
    if spec.owners.is_empty() {
        return Err(InvalidReservation::NoOwners);
    }
    if spec.ttl.is_none() && spec.expires.is_none() {
        return Err(InvalidReservation::NoExpiration);
    }
    Ok(ValidReservation { reservation, spec, owners: OwnerMatcher::new(&spec.owners)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::crd::decode_object;

    #[test]
    fn faults_in_order() {
        let bogus =
            json!([{ "labelSelector": { "matchExpressions": [{ "key": "a", "operator": "Bogus" }] } }]);
        let owners = json!([{ "object": { "name": "p" } }]);
        for (name, spec, want) in [
            ("no spec", json!(null), "the reservation misses the template spec"),
            ("nothing", json!({}), "the reservation misses the template spec"),
            (
                "template null",
                json!({ "template": null, "owners": [] }),
                "the reservation misses the template spec",
            ),
            ("no owners", json!({ "template": {} }), "the reservation misses the owner spec"),
            (
                "no expiration",
                json!({ "template": {}, "owners": owners }),
                "the reservation misses the expiration spec",
            ),
            (
                "bad selector",
                json!({ "template": {}, "owners": bogus, "ttl": "1h" }),
                "owners[0]: Invalid value: {\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Bogus\"}]}: \
                 \"Bogus\" is not a valid label selector operator",
            ),
        ] {
            let reservation: Reservation =
                decode_object(&json!({ "metadata": { "name": "r" }, "spec": spec })).unwrap();
            assert_eq!(validate(Some(&reservation)).unwrap_err().to_string(), want, "{name}");
        }
        assert_eq!(validate(None).unwrap_err().to_string(), "the reservation is nil");

        for expiration in [json!({ "ttl": "0s" }), json!({ "expires": "2030-01-01T00:00:00Z" })] {
            let mut spec = json!({ "template": {}, "owners": owners });
            spec.as_object_mut().unwrap().extend(expiration.as_object().unwrap().clone());
            let reservation: Reservation = decode_object(&json!({ "spec": spec })).unwrap();
            assert!(validate(Some(&reservation)).is_ok(), "{expiration}");
        }
    }
}
