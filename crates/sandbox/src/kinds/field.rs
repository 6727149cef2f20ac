//! Where in an object a fault is.

use std::fmt;

/// Where a field is: `spec.containers[0].name`. Links to its parent, so building one costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    pub fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Name(name) }
    }

    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Name(name) }
    }

    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of a map: `labels[app]`.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Name(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Name(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Field errors take their place as text.
impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> String {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_kubernetes_writes_them() {
        let spec = Path::root("spec");
        let ports = spec.child("ports");
        let port = ports.index(1);
        assert_eq!(port.child("name").to_string(), "spec.ports[1].name");
        assert_eq!(spec.child("labels").key("a.b/c").to_string(), "spec.labels[a.b/c]");
    }
}
