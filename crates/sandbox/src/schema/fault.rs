//! What is wrong with one field, in the words and with the reasons Kubernetes uses.
//!
//! `Display` gives the line users read (`spec.containers[0].name: Required value`); `reason` and
//! `body` are what a Status lists as a cause.

use std::fmt;

use serde_json::Value;

/// One fault of one field. Change texts here and nowhere else.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub fault: Fault,
    /// Path such as `spec.containers[0].name`; `<nil>` where Kubernetes knows none.
    pub field: String,
    /// The value as it is printed; `None` where Kubernetes prints no value.
    pub value: Option<Value>,
    /// The value as Kubernetes prints it, where its own order of fields shows.
    pub shown: Option<String>,
    pub detail: String,
}

/// The kinds of fault, as Kubernetes names them in causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Duplicate,
    Forbidden,
    NotFound,
    TooLong,
    TooMany,
    Internal,
}

impl Fault {
    fn title(self) -> &'static str {
        match self {
            Fault::Required => "Required value",
            Fault::Invalid | Fault::TypeInvalid => "Invalid value",
            Fault::NotSupported => "Unsupported value",
            Fault::Duplicate => "Duplicate value",
            Fault::Forbidden => "Forbidden",
            Fault::NotFound => "Not found",
            Fault::TooLong => "Too long",
            Fault::TooMany => "Too many",
            Fault::Internal => "Internal error",
        }
    }

    /// The machine-readable reason of a Status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Fault::Required => "FieldValueRequired",
            Fault::Invalid => "FieldValueInvalid",
            Fault::TypeInvalid => "FieldValueTypeInvalid",
            Fault::NotSupported => "FieldValueNotSupported",
            Fault::Duplicate => "FieldValueDuplicate",
            Fault::Forbidden => "FieldValueForbidden",
            Fault::NotFound => "FieldValueNotFound",
            Fault::TooLong => "FieldValueTooLong",
            Fault::TooMany => "FieldValueTooMany",
            Fault::Internal => "InternalError",
        }
    }
}

impl FieldError {
    pub fn new(
        fault: Fault,
        field: impl Into<String>,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError { fault, field: field.into(), value, shown: None, detail: detail.into() }
    }

    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Fault::Required, field, None, detail)
    }

    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(Fault::Invalid, field, Some(value.into()), detail)
    }

    pub fn type_invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(Fault::TypeInvalid, field, Some(value.into()), detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Fault::Forbidden, field, None, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(Fault::Duplicate, field, Some(value.into()), "")
    }

    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(Fault::NotFound, field, Some(value.into()), "")
    }

    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Fault::Internal, field, None, detail)
    }

    /// A value outside a closed list; the list is printed in the order given.
    pub fn not_supported<'a>(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> FieldError {
        let names: Vec<String> = supported.into_iter().map(quote).collect();
        let detail = match names.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", names.join(", ")),
        };
        FieldError::new(Fault::NotSupported, field, Some(value.into()), detail)
    }

    /// A text longer than `max` bytes; the text itself is not repeated.
    pub fn too_long(field: impl Into<String>, max: i64) -> FieldError {
        let detail = match max {
            1 => "may not be more than 1 byte".to_owned(),
            0.. => format!("may not be more than {max} bytes"),
            _ => "value is too long".to_owned(),
        };
        FieldError::new(Fault::TooLong, field, None, detail)
    }

    /// A list of `found` items where at most `max` may stand.
    pub fn too_many(field: impl Into<String>, found: i64, max: i64) -> FieldError {
        let detail = match max {
            1 => "must have at most 1 item".to_owned(),
            0.. => format!("must have at most {max} items"),
            _ => "has too many items".to_owned(),
        };
        FieldError::new(Fault::TooMany, field, (found >= 0).then(|| found.into()), detail)
    }

    /// Prints the value as this text.
    pub fn showing(mut self, text: impl Into<String>) -> FieldError {
        self.shown = Some(text.into());
        self
    }

    pub fn reason(&self) -> &'static str {
        self.fault.reason()
    }

    /// The text without the field name, as it stands in a cause.
    pub fn body(&self) -> String {
        let mut text = self.fault.title().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            match &self.shown {
                Some(shown) => text.push_str(shown),
                None => text.push_str(&print(value)),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// All faults as one text: alone as it is, several in brackets; equal ones once.
pub fn join(faults: &[FieldError]) -> String {
    let mut lines: Vec<String> = Vec::with_capacity(faults.len());
    for line in faults.iter().map(FieldError::to_string) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", lines.join(", ")),
    }
}

fn print(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(number) => print_number(number),
        other => koord_api::gojson::to_string(other).unwrap_or_else(|_| other.to_string()),
    }
}

/// A number as Go's `%v` prints it: whole numbers plainly, large or tiny floats with an exponent.
pub(super) fn print_number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => print_float(float),
        _ => number.to_string(),
    }
}

/// A float as Go's `%v` prints it.
pub(super) fn print_float(float: f64) -> String {
    if float == 0.0 || (1e-4..1e21).contains(&float.abs()) {
        return format!("{float}");
    }
    // Go pads the exponent to two digits and always writes its sign.
    let text = format!("{float:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

/// A text in double quotes with Go's escapes.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            other if u32::from(other) < 0x80 && other.is_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(other)));
            }
            other if other.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_as_kubernetes_prints_them() {
        for (fault, want) in [
            (FieldError::required("spec.a", ""), "spec.a: Required value"),
            (FieldError::required("a", "must be set"), "a: Required value: must be set"),
            (FieldError::invalid("a", 0, "too small"), "a: Invalid value: 0: too small"),
            (FieldError::invalid("a", "x\n", "bad"), "a: Invalid value: \"x\\n\": bad"),
            (FieldError::invalid("a", 1e21, "bad"), "a: Invalid value: 1e+21: bad"),
            (FieldError::invalid("a", json!({"b": "<"}), "bad"), r#"a: Invalid value: {"b":"\u003c"}: bad"#),
            (
                FieldError::not_supported("a", "x", ["p", "q"]),
                r#"a: Unsupported value: "x": supported values: "p", "q""#,
            ),
            (FieldError::duplicate("a[1]", "x"), r#"a[1]: Duplicate value: "x""#),
            (FieldError::forbidden("a", "may not be set"), "a: Forbidden: may not be set"),
            (FieldError::too_long("a", 63), "a: Too long: may not be more than 63 bytes"),
            (FieldError::too_many("a", 3, 1), "a: Too many: 3: must have at most 1 item"),
        ] {
            assert_eq!(fault.to_string(), want);
        }
    }

    #[test]
    fn several_faults_stand_in_brackets_once_each() {
        let one = FieldError::required("a", "");
        let two = FieldError::required("b", "");
        assert_eq!(join(std::slice::from_ref(&one)), "a: Required value");
        assert_eq!(join(&[one.clone(), two, one]), "[a: Required value, b: Required value]");
    }
}
