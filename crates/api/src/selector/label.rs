//! Label selectors, compiled once and matched often.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::syntax::{SelectorError, check_key, check_value, invalid, invalid_list, quote};
use super::text;

/// Anything that has labels.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Labels for BTreeMap<String, String> {
    fn label(&self, key: &str) -> Option<&str> {
        self.get(key).map(String::as_str)
    }
}

/// Object metadata holds its labels so; none is the same as empty.
impl Labels for Option<BTreeMap<String, String>> {
    fn label(&self, key: &str) -> Option<&str> {
        self.as_ref()?.label(key)
    }
}

impl<const N: usize> Labels for [(&str, &str); N] {
    fn label(&self, key: &str) -> Option<&str> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

/// A compiled label selector.
///
/// ```
/// use koord_api::selector::Selector;
/// let selector: Selector = "app=web,tier notin (test)".parse()?;
/// assert!(selector.matches(&[("app", "web"), ("tier", "prod")]));
/// # Ok::<(), koord_api::selector::SelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// ANDed, ascending by key; none when nothing matches.
    requirements: Option<Vec<Requirement>>,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
    /// The only value as a number, for `Gt` and `Lt`.
    bound: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl Selector {
    pub fn nothing() -> Selector {
        Selector { requirements: None }
    }

    pub fn everything() -> Selector {
        Selector { requirements: Some(Vec::new()) }
    }

    /// Compiles a selector object. An absent one matches nothing, an empty one everything.
    pub fn new(selector: Option<&LabelSelector>) -> Result<Selector, SelectorError> {
        let Some(selector) = selector else { return Ok(Selector::nothing()) };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Operator::Equals, Some(vec![value.clone()]), "")?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(SelectorError::new(format!(
                        "{} is not a valid label selector operator",
                        quote(other)
                    )));
                }
            };
            let values = expression.values.clone().filter(|values| !values.is_empty());
            requirements.push(Requirement::new(&expression.key, operator, values, "")?);
        }
        Ok(Selector::all_of(requirements))
    }

    /// As `new`, but a selector of `matchLabels` only is used without a look at its syntax; a wrong
    /// label then simply matches no object. Profiles and reservation owners are read so.
    pub fn new_unchecked_labels(selector: Option<&LabelSelector>) -> Result<Selector, SelectorError> {
        match selector {
            Some(LabelSelector { match_labels: Some(labels), match_expressions })
                if match_expressions.as_ref().is_none_or(Vec::is_empty) =>
            {
                Ok(Selector::from_labels(labels))
            }
            _ => Selector::new(selector),
        }
    }

    /// Matches objects that have all of these labels. Syntax is not checked, as for `nodeSelector`.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Selector {
        let requirements = labels.iter().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::Equals,
            values: vec![value.clone()],
            bound: 0,
        });
        Selector::all_of(requirements.collect())
    }

    /// Matches what both match. One that matches nothing has no conditions to add and is left out, as in Kubernetes
    /// where selectors are added up.
    pub fn joined(&self, other: &Selector) -> Selector {
        Selector::all_of(self.requirements().iter().chain(other.requirements()).cloned().collect())
    }

    pub(super) fn all_of(mut requirements: Vec<Requirement>) -> Selector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Selector { requirements: Some(requirements) }
    }

    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.requirements
            .as_ref()
            .is_some_and(|requirements| requirements.iter().all(|requirement| requirement.matches(labels)))
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether no object can match.
    pub fn is_nothing(&self) -> bool {
        self.requirements.is_none()
    }

    /// The conditions, ascending by key.
    pub fn requirements(&self) -> &[Requirement] {
        self.requirements.as_deref().unwrap_or_default()
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    /// Reads the text of `kubectl -l` and of the API's `labelSelector` parameter.
    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        text::parse(text).map(Selector::all_of)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements().iter().enumerate() {
            write!(f, "{}{requirement}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Requirement {
    /// Checks and builds a condition. `path` goes before the field names in errors.
    pub(super) fn new(
        key: &str,
        operator: Operator,
        values: Option<Vec<String>>,
        path: &str,
    ) -> Result<Requirement, SelectorError> {
        let child = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let mut errors = Vec::new();
        let wrong = check_key(key);
        if !wrong.is_empty() {
            errors.push(invalid(&child("key"), key, &wrong.join("; ")));
        }
        let list = values.as_deref();
        let count = list.map_or(0, <[String]>::len);
        let complaint = match operator {
            Operator::In | Operator::NotIn if count == 0 => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::NotEquals if count != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if count != 0 => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if count != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(complaint) = complaint {
            errors.push(invalid_list(&child("values"), list, complaint));
        }
        let mut bound = 0;
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (i, value) in list.into_iter().flatten().enumerate() {
                match value.parse() {
                    Ok(number) => bound = number,
                    Err(_) => errors.push(invalid(
                        &format!("{}[{i}]", child("values")),
                        value,
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    )),
                }
            }
        }
        for (i, value) in list.into_iter().flatten().enumerate() {
            let wrong = check_value(value);
            if !wrong.is_empty() {
                errors.push(invalid(&format!("{}[{i}][{key}]", child("values")), value, &wrong.join("; ")));
            }
        }
        SelectorError::check(errors)?;
        Ok(Requirement { key: key.to_owned(), operator, values: values.unwrap_or_default(), bound })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> Operator {
        self.operator
    }

    pub fn values(&self) -> &[String] {
        &self.values
    }

    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        let found = labels.label(&self.key);
        let is_listed = |value: &str| self.values.iter().any(|listed| listed == value);
        let number = || found.and_then(|value| value.parse::<i64>().ok());
        match self.operator {
            Operator::In | Operator::Equals => found.is_some_and(is_listed),
            Operator::NotIn | Operator::NotEquals => !found.is_some_and(is_listed),
            Operator::Exists => found.is_some(),
            Operator::DoesNotExist => found.is_none(),
            Operator::GreaterThan => number().is_some_and(|number| number > self.bound),
            Operator::LessThan => number().is_some_and(|number| number < self.bound),
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Requirement { key, values, .. } = self;
        let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests;
