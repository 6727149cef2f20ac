//! The kubelet's list of pods as it comes over the wire: devices are added, and whatever else it holds stays as it is, also
//! what later kubelets say.

use prost::{DecodeError, Message, decode_length_delimiter, encode_length_delimiter};

/// Devices of one resource that a container has.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub(super) resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) device_ids: Vec<String>,
}

/// As much of a pod in the list as says whose it is.
#[derive(Clone, PartialEq, Message)]
struct PodName {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

/// Numbers of fields: pods of a list, containers of a pod, devices of a container.
const PODS: usize = 1;
const CONTAINERS: usize = 3;
const DEVICES: usize = 2;

/// How a field's value is written, as the low bits of its key say.
const NUMBER: usize = 0;
const EIGHT_BYTES: usize = 1;
/// Texts and bytes, too: its length, and so many bytes.
const MESSAGE: usize = 2;
const FOUR_BYTES: usize = 5;

/// A field of a message.
struct Field<'m> {
    number: usize,
    /// With its key.
    whole: &'m [u8],
    /// Without the key, and without the length of a message; nothing for numbers.
    value: &'m [u8],
}

/// A list, with devices in the first container of each pod that was given some. Spec: koordlet-observe 3.7.
pub(super) fn with_devices(
    list: &[u8],
    given: impl Fn(&str, &str) -> Vec<ContainerDevices>,
) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::with_capacity(list.len());
    for field in fields(list)? {
        if field.number != PODS {
            out.extend_from_slice(field.whole);
            continue;
        }
        let PodName { name, namespace } = PodName::decode(field.value)?;
        match given(&namespace, &name) {
            devices if devices.is_empty() => out.extend_from_slice(field.whole),
            devices => put(&mut out, PODS, &pod_with(field.value, &devices)?),
        }
    }
    Ok(out)
}

fn pod_with(pod: &[u8], devices: &[ContainerDevices]) -> Result<Vec<u8>, DecodeError> {
    let (mut out, mut is_first) = (Vec::new(), true);
    for field in fields(pod)? {
        if field.number == CONTAINERS && std::mem::take(&mut is_first) {
            put(&mut out, CONTAINERS, &container_with(field.value, devices)?);
        } else {
            out.extend_from_slice(field.whole);
        }
    }
    Ok(out)
}

/// All devices of a container stand in the order of their resources.
fn container_with(container: &[u8], devices: &[ContainerDevices]) -> Result<Vec<u8>, DecodeError> {
    let (mut out, mut all) = (Vec::new(), Vec::new());
    for field in fields(container)? {
        if field.number == DEVICES {
            all.push((ContainerDevices::decode(field.value)?.resource_name, field.value.to_vec()));
        } else {
            out.extend_from_slice(field.whole);
        }
    }
    all.extend(devices.iter().map(|devices| (devices.resource_name.clone(), devices.encode_to_vec())));
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.iter().for_each(|(_, devices)| put(&mut out, DEVICES, devices));
    Ok(out)
}

/// Adds a field that holds a message.
fn put(out: &mut Vec<u8>, number: usize, message: &[u8]) {
    for length in [number << 3 | MESSAGE, message.len()] {
        encode_length_delimiter(length, out).expect("a vector grows");
    }
    out.extend_from_slice(message);
}

fn fields(message: &[u8]) -> Result<Vec<Field<'_>>, DecodeError> {
    let (mut rest, mut fields) = (message, Vec::new());
    while !rest.is_empty() {
        let start = rest;
        let key = decode_length_delimiter(&mut rest)?;
        let length = match key & 7 {
            NUMBER => decode_length_delimiter(&mut rest).map(|_| 0)?,
            EIGHT_BYTES => 8,
            MESSAGE => decode_length_delimiter(&mut rest)?,
            FOUR_BYTES => 4,
            // Groups, which no interface of Kubernetes has.
            _ => return Err(broken()),
        };
        let (value, after) = rest.split_at_checked(length).ok_or_else(broken)?;
        rest = after;
        fields.push(Field { number: key >> 3, whole: &start[..start.len() - rest.len()], value });
    }
    Ok(fields)
}

/// The error of a message that ends too early: only prost can make one.
fn broken() -> DecodeError {
    PodName::decode([0x0a, 1].as_slice()).expect_err("it announces a byte that does not come")
}
