//! The tag of an image reference: it decides how an image is pulled.

/// The tag an image is pulled by: `latest` when it names neither tag nor digest, empty when it has
/// only a digest or is no reference at all.
pub(super) fn tag(image: &str) -> &str {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) if is_digest(digest) => (rest, true),
        Some(_) => return "",
        None => (image, false),
    };
    let slash = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[slash..].split_once(':') {
        Some((name, tag)) if is_tag(tag) => (&rest[..slash + name.len()], tag),
        Some(_) => return "",
        None => (rest, ""),
    };
    match (is_name(name), tag, digest) {
        (false, _, _) => "",
        (true, "", false) => "latest",
        (true, tag, _) => tag,
    }
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = tag.as_bytes();
    bytes.first().is_some_and(|b| word(*b))
        && bytes.len() <= 128
        && bytes.iter().all(|b| word(*b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
        && hex.len() >= 32
        && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A repository, with its host or without.
fn is_name(name: &str) -> bool {
    let is_id = name.len() == 64 && name.bytes().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9'));
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if is_host(host) => (host, path),
        _ => ("", name),
    };
    !is_id && host.len() + path.len() <= 255 && path.split('/').all(is_path_part)
}

/// What stands before the first slash names a host when it could not be a part of a path.
fn is_host(part: &str) -> bool {
    let is_meant = part.contains(['.', ':']) || part == "localhost" || part.to_ascii_lowercase() != part;
    let (name, port) = part.rsplit_once(':').unwrap_or((part, "0"));
    let is_name = name.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    });
    let is_ipv6 = name.starts_with('[') && name.ends_with(']');
    is_meant && (is_name || is_ipv6) && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Lower case words joined by one dot, one or two underscores, or dashes.
fn is_path_part(part: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_joined = part.starts_with(word) && part.ends_with(word);
    let joints = part.split(word).filter(|joint| !joint.is_empty());
    is_joined
        && joints
            .into_iter()
            .all(|joint| matches!(joint, "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_references() {
        let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        for (image, want) in [
            ("nginx", "latest"),
            ("nginx:1.25", "1.25"),
            ("nginx:latest", "latest"),
            ("example.com:5000/a/b", "latest"),
            ("example.com:5000/a/b:v1", "v1"),
            ("Host/a", "latest"),
            ("", ""),
            (" ", ""),
            ("Nginx", ""),
            ("a//b", ""),
            ("a:", ""),
            ("a@sha256:12", ""),
        ] {
            assert_eq!(tag(image), want, "{image}");
        }
        assert_eq!(tag(&format!("a@{digest}")), "");
        assert_eq!(tag(&format!("a:v2@{digest}")), "v2");
    }
}
