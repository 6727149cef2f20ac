//! The hash that tells one pod template from another.

use serde_json::Value;

/// Letters and digits without vowels, so that no word comes of it.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The label that Deployments put on what they make.
pub(crate) const TEMPLATE_HASH: &str = "pod-template-hash";

/// A hash of the template as labels and names carry it. `collisions` makes another one.
///
/// Differs: kube-controller-manager hashes the printed Go structure. The number is another, the
/// form the same.
pub(crate) fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    let mut bytes = template.to_string().into_bytes();
    if let Some(count) = collisions {
        bytes.extend_from_slice(&count.to_le_bytes());
    }
    encode(fnv32(&bytes))
}

/// A number in letters that suit a name.
pub(crate) fn encode(number: u32) -> String {
    number
        .to_string()
        .bytes()
        .map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()]))
        .collect()
}

/// FNV-1a, 32 bits.
fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What makes two templates the same: all but the hash that a controller added. Null and empty
/// count as absent.
pub(crate) fn digest(template: &Value) -> u64 {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(TEMPLATE_HASH);
    }
    prune(&mut template);
    let text = template.to_string();
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(prune);
            map.retain(|_, value| !is_empty(value));
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_differ_by_content_only() {
        let a = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c"}]}});
        let mut hashed = a.clone();
        hashed["metadata"]["labels"][TEMPLATE_HASH] = json!("abc");
        hashed["metadata"]["creationTimestamp"] = json!(null);
        assert_eq!(digest(&a), digest(&hashed));
        let mut other = a.clone();
        other["spec"]["containers"][0]["name"] = json!("d");
        assert_ne!(digest(&a), digest(&other));
        assert_ne!(template_hash(&a, None), template_hash(&a, Some(1)));
        assert!(template_hash(&a, None).bytes().all(|c| ALPHABET.contains(&c)));
    }

    #[test]
    fn the_encoding_is_kubernetes_own() {
        assert_eq!(encode(1_234_567_890), "56789bcdf4");
    }
}
