//! Which network cards a container is given. Spec: koordlet-enforce 15.7.

use koord_api::annotation::device::DeviceAllocation;
use koord_api::crd::device::DeviceType;

use crate::decide::snapshot::Pod;

/// The device that every user of RDMA needs.
pub const CONNECTION_MANAGER: &str = "/dev/infiniband/rdma_cm";

/// Bus ids of the cards, or of their virtual functions, whose devices are given; none when the pod has no card.
pub fn bus_ids(pod: &Pod) -> Result<Vec<&str>, String> {
    let devices = pod.devices.as_ref().map_err(|error| error.reason())?;
    let cards = devices.as_ref().and_then(|devices| devices.0.get(&DeviceType::Rdma));
    Ok(cards.into_iter().flatten().flat_map(ids_of).collect())
}

fn ids_of(card: &DeviceAllocation) -> Vec<&str> {
    let functions = card.extension.as_ref().map(|extension| extension.vfs.as_slice()).unwrap_or_default();
    if functions.is_empty() {
        return vec![&card.id];
    }
    functions.iter().map(|function| function.bus_id.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use koord_api::annotation::Annotation;
    use koord_api::annotation::device::DeviceAllocations;

    use super::*;
    use crate::decide::sketch::pod;

    #[test]
    fn cards_and_their_functions() {
        let of = |text: &str| {
            let pod = pod("p").annotated(DeviceAllocations::KEY, text).read();
            bus_ids(&pod).map(|ids| ids.join(" "))
        };
        let card = r#"{"rdma":[{"minor":0,"id":"0000:09:00.0"}]}"#;
        let functions =
            r#"{"rdma":[{"minor":0,"id":"0000:09:00.0","extension":{"vfs":[{"busID":"x"},{"busID":"y"}]}}]}"#;
        assert_eq!(of(card), Ok("0000:09:00.0".to_string()));
        assert_eq!(of(functions), Ok("x y".to_string()));
        assert_eq!(of(r#"{"gpu":[{"minor":0}]}"#), Ok(String::new()));
        assert!(of("{").is_err());
    }
}
