//! Versions of Kubernetes and etcd.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The Kubernetes that tests run against unless told otherwise.
pub const KUBERNETES_VERSION: &str = "v1.35.4";

/// A release such as `v1.35.4` or `v1.36.0-rc.0`; the `v` may be left out on input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    numbers: [u32; 3],
    /// With its leading `-`, or empty.
    suffix: String,
}

impl Version {
    /// The pinned Kubernetes, or what `KOORD_K8S_VERSION` says.
    pub fn kubernetes() -> Result<Version, Error> {
        let wanted = std::env::var("KOORD_K8S_VERSION").unwrap_or_default();
        if wanted.is_empty() { KUBERNETES_VERSION.parse() } else { wanted.parse() }
    }

    pub(crate) fn major(&self) -> u32 {
        self.numbers[0]
    }

    pub(crate) fn minor(&self) -> u32 {
        self.numbers[1]
    }

    /// `v0.35.4` for `v1.35.4`: how k8s.io/api and its siblings number the same release.
    pub(crate) fn staging(&self) -> Version {
        Version { numbers: [0, self.numbers[1], self.numbers[2]], suffix: self.suffix.clone() }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "v{major}.{minor}.{patch}{}", self.suffix)
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Version, Error> {
        let bad = || Error::BadVersion { value: text.to_string() };
        let body = text.strip_prefix('v').unwrap_or(text);
        let (core, suffix) = body.split_at(body.find('-').unwrap_or(body.len()));
        // The suffix becomes part of a path and of a go.mod: letters, digits, dots and dashes only.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        if suffix == "-" || suffix.contains("..") || !suffix.chars().all(plain) {
            return Err(bad());
        }
        let numbers: Vec<u32> = core
            .split('.')
            .map(|part| {
                let canonical = part == "0" || !part.starts_with('0');
                let digits = part.chars().all(|c| c.is_ascii_digit());
                part.parse().ok().filter(|_| canonical && digits).ok_or_else(bad)
            })
            .collect::<Result<_, _>>()?;
        let numbers = numbers.try_into().map_err(|_| bad())?;
        Ok(Version { numbers, suffix: suffix.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_strictly() {
        for (text, want) in [
            ("v1.35.4", Some("v1.35.4")),
            ("1.35.4", Some("v1.35.4")),
            ("v1.36.0-rc.0", Some("v1.36.0-rc.0")),
            ("0.0.0", Some("v0.0.0")),
            ("", None),
            ("v", None),
            ("v1.35", None),
            ("v1.35.4.1", None),
            ("v1.035.4", None),
            ("v1.+3.4", None),
            ("v1..4", None),
            ("v1.35.4-", None),
            ("v1.35.4-../x", None),
            ("v1.35.4-a b", None),
            ("latest", None),
            ("v1.99999999999.0", None),
        ] {
            let got = text.parse::<Version>().ok().map(|version| version.to_string());
            assert_eq!(got.as_deref(), want, "{text:?}");
        }
    }

    #[test]
    fn staging_modules_count_from_zero() {
        let version: Version = "v1.36.0-rc.0".parse().unwrap();
        assert_eq!(version.staging().to_string(), "v0.36.0-rc.0");
    }

    #[test]
    fn a_bad_version_says_what_is_accepted() {
        let error = "1.35".parse::<Version>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"1.35\" is not a version: expected three numbers such as v1.35.4 or v1.36.0-rc.0"
        );
    }
}
