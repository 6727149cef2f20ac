//! Kubernetes' words for what is wrong with a field.

use std::fmt;

use koord_api::duration::GoDuration;
use koord_api::selector::syntax::check_key;
use serde_json::Value;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The field, such as `profiles[0].schedulerName`; where a file is at hand it gives the line.
    pub(super) path: String,
    /// The whole complaint, the field included where Kubernetes names it.
    pub(super) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Fault {
    /// A complaint in words of its own.
    pub(super) fn new(path: impl Into<String>, text: impl Into<String>) -> Fault {
        Fault { path: path.into(), text: text.into() }
    }

    pub(super) fn invalid(path: impl Into<String>, value: impl Shown, detail: &str) -> Fault {
        Fault::of(path, &format!("Invalid value: {}: {detail}", value.shown()))
    }

    /// `detail` may be empty.
    pub(super) fn required(path: impl Into<String>, detail: &str) -> Fault {
        let separator = if detail.is_empty() { "" } else { ": " };
        Fault::of(path, &format!("Required value{separator}{detail}"))
    }

    pub(super) fn forbidden(path: impl Into<String>, detail: &str) -> Fault {
        Fault::of(path, &format!("Forbidden: {detail}"))
    }

    pub(super) fn duplicate(path: impl Into<String>, value: &str) -> Fault {
        Fault::of(path, &format!("Duplicate value: {value:?}"))
    }

    pub(super) fn not_found(path: impl Into<String>, value: &str) -> Fault {
        Fault::of(path, &format!("Not found: {value:?}"))
    }

    pub(super) fn unsupported(path: impl Into<String>, value: &str, supported: &[&str]) -> Fault {
        let supported: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        Fault::of(path, &format!("Unsupported value: {value:?}: supported values: {}", supported.join(", ")))
    }

    fn of(path: impl Into<String>, message: &str) -> Fault {
        let path = path.into();
        Fault { text: format!("{path}: {message}"), path }
    }
}

/// Complaints as Kubernetes lists them: one as it is, several in brackets, equal ones once.
pub(super) fn join<T: ToString>(complaints: &[T]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in complaints.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// A field below another; the upper one may be empty.
pub(super) fn below(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// A value as it stands in a complaint.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

impl Shown for i32 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for i64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for usize {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for &str {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl Shown for GoDuration {
    fn shown(&self) -> String {
        format!("\"{self}\"")
    }
}

/// A value that is written already.
pub(super) struct Verbatim(pub(super) String);

impl Shown for Verbatim {
    fn shown(&self) -> String {
        self.0.clone()
    }
}

impl Shown for Value {
    fn shown(&self) -> String {
        self.to_string()
    }
}

/// What is wrong with a label's or resource's name.
pub(super) fn check_name(path: &str, name: &str) -> Vec<Fault> {
    check_key(name).iter().map(|detail| Fault::invalid(path, name, detail)).collect()
}

/// Whether a resource is neither Kubernetes' own nor unusable as a name.
pub(super) fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    // A quota writes it with this prefix, so that must be a name too.
    !is_native && !name.starts_with("requests.") && check_key(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_listed_as_kubernetes_does() {
        assert_eq!(join(&["a"]), "a");
        assert_eq!(join(&["a", "b", "a"]), "[a, b]");
        assert_eq!(join(&["a", "a"]), "a");
        assert_eq!(Fault::required("p", "").text, "p: Required value");
        assert_eq!(Fault::required("p", "can not be empty").text, "p: Required value: can not be empty");
        assert_eq!(below("", "a") + &below("a", "b"), "aa.b");
    }

    #[test]
    fn extended_resources() {
        for (name, want) in [
            ("example.com/a", true),
            ("foo", false),
            ("kubernetes.io/batch-cpu", false),
            ("x.kubernetes.io/y", false),
            ("requests.example.com/a", false),
            ("a b/c", false),
            ("example.com/", false),
        ] {
            assert_eq!(is_extended_resource(name), want, "{name}");
        }
    }
}
