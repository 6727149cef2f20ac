//! List options: what a query asks for, checked; and the tokens that continue a list.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{NO_PAD, URL_SAFE_NO_PAD};
use base64::engine::{DecodePaddingMode, GeneralPurpose};
use koord_api::selector::{FieldSelector, Selector, SelectorError};
use serde_json::{Value, json};

use super::api::Api;
use crate::kinds::{FieldError, Kind, Path};
use crate::status::{ApiError, Cause};
use crate::store::{Page, Query, Selection};

/// As Go reads base64: bits left over at the end are ignored.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    NO_PAD.with_decode_allow_trailing_bits(true).with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The options of list, watch and deletecollection, as sent.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    pub watch: bool,
    pub allow_bookmarks: bool,
    pub send_initial_events: Option<bool>,
    pub timeout_seconds: Option<u64>,
    pub limit: Option<usize>,
    pub continue_token: String,
    pub revision: String,
    pub revision_match: String,
}

/// One page, ready to be rendered.
pub struct Listing {
    pub page: Page,
    pub continue_token: String,
    /// Absent when a selector makes the number unknown.
    pub remaining: Option<usize>,
}

impl ListOptions {
    /// Compiles the selectors; the name in the path, if any, counts as one.
    pub fn selection(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Selection, ApiError> {
        let bad = |e: SelectorError| ApiError::bad_request(e.to_string());
        let labels: Selector = self.label_selector.parse().map_err(bad)?;
        let mut fields: FieldSelector = self.field_selector.parse().map_err(bad)?;
        if let Some(term) = fields.terms().iter().find(|term| !kind.knows_field(&term.field)) {
            return Err(ApiError::bad_request(kind.unknown_field(&term.field)));
        }
        if !name.is_empty() {
            if fields.is_everything() {
                let exact = format!("metadata.name={name}");
                fields = exact.parse().map_err(bad)?;
            } else if fields.exact("metadata.name") != Some(name) {
                return Err(ApiError::bad_request(
                    "fieldSelector metadata.name doesn't match requested name",
                ));
            }
        }
        let namespace = (kind.namespaced && !namespace.is_empty()).then(|| namespace.to_owned());
        Ok(Selection { namespace, labels, fields })
    }

    /// Whether a watch begins with what is there already.
    pub fn wants_initial_events(&self) -> bool {
        self.send_initial_events.unwrap_or(["", "0"].contains(&self.revision.as_str()))
    }

    pub fn validate(&self) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        let path = Path::root("resourceVersionMatch");
        let (found, is_watch) = (self.revision_match.as_str(), self.watch);
        let mut forbid = |detail: &str| errors.push(FieldError::forbidden(&path, detail));
        if is_watch && self.send_initial_events.is_some() && found != "NotOlderThan" {
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if !found.is_empty() {
            if is_watch && self.send_initial_events.is_none() {
                forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            if !is_watch && self.revision.is_empty() {
                forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            if !self.continue_token.is_empty() {
                forbid("resourceVersionMatch is forbidden when continue is provided");
            }
            let known: &[&str] = if is_watch { &["NotOlderThan"] } else { &["Exact", "NotOlderThan", ""] };
            if !known.contains(&found) {
                errors.push(FieldError::not_supported(&path, found, known.iter().copied()));
            } else if found == "Exact" && self.revision == "0" {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                errors.push(FieldError::forbidden(&path, detail));
            }
        }
        if !is_watch && self.send_initial_events.is_some() {
            let path = Path::root("sendInitialEvents");
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", &errors)),
        }
    }

    pub(super) fn revision_number(&self) -> Result<u64, BadRevision> {
        if self.revision.is_empty() {
            return Ok(0);
        }
        self.revision.parse().map_err(|_| {
            let text = self.revision.as_str();
            let why = format!("strconv.ParseUint: parsing {}: invalid syntax", crate::kinds::quote(text));
            BadRevision(FieldError::invalid(&Path::root("resourceVersion"), text, why))
        })
    }
}

/// A resourceVersion that is no number.
pub(super) struct BadRevision(FieldError);

impl BadRevision {
    /// As a get or a watch is told.
    pub(super) fn of_one(self) -> ApiError {
        ApiError::new(500, "", self.0.to_string())
    }

    /// As a list is told.
    fn of_list(self) -> ApiError {
        ApiError::bad_request(format!("invalid resource version: {}", self.0))
    }
}

impl Api {
    pub fn list_page(
        &self,
        kind: &Kind,
        selection: &Selection,
        options: &ListOptions,
    ) -> Result<Listing, ApiError> {
        options.validate()?;
        let revision = options.revision_number().map_err(BadRevision::of_list)?;
        let mut query = Query {
            namespace: selection.namespace.as_deref(),
            limit: options.limit.filter(|limit| *limit > 0),
            ..Query::default()
        };
        let start;
        let mut token_start = None;
        if !options.continue_token.is_empty() {
            if !["", "0"].contains(&options.revision.as_str()) {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let (key, at) = decode_continue(&options.continue_token)?;
            start = key.trim_end_matches('\0').to_owned();
            query.after = Some(&start);
            query.at = at;
            token_start = Some(key);
        } else if revision > self.revision() {
            return Err(too_large(revision, self.revision()));
        } else if options.revision_match == "Exact"
            || (revision > 0 && query.limit.is_some() && options.revision_match.is_empty())
        {
            query.at = Some(revision);
        }
        let page = self.table(kind).page(query, &|object| selection.matches(object));
        let page = page.map_err(|_| expired(token_start.as_deref()))?;
        let has_more = page.remaining > 0;
        let continue_token = match page.items.last() {
            Some(last) if has_more => encode_continue(&format!("{}\0", last.key()), Some(page.revision)),
            _ => String::new(),
        };
        let is_counted = has_more && selection.labels.is_everything() && selection.fields.is_everything();
        let remaining = is_counted.then_some(page.remaining);
        Ok(Listing { page, continue_token, remaining })
    }
}

pub(super) fn too_large(wanted: u64, current: u64) -> ApiError {
    let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
    ApiError::new(504, "Timeout", message).with_retry_after(1).with_causes(vec![Cause {
        reason: "ResourceVersionTooLarge".to_owned(),
        message: "Too large resource version".to_owned(),
        field: String::new(),
    }])
}

fn expired(start: Option<&str>) -> ApiError {
    let Some(start) = start else {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    };
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of \
         the results. Continuing with the provided token results in an inconsistent list - objects that were \
         created, modified, or deleted between the time the first chunk was returned and now may show up in the \
         list.",
    );
    error.continue_token = Some(encode_continue(start, None));
    error
}

/// Kubernetes' own form; a revision of -1 continues with what is there then.
fn encode_continue(start: &str, revision: Option<u64>) -> String {
    let revision = revision.map_or(json!(-1), |r| json!(r));
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start});
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn decode_continue(token: &str) -> Result<(String, Option<u64>), ApiError> {
    let bad =
        |why: &str| ApiError::bad_request(format!("invalid continue token: continue key is not valid{why}"));
    let bytes = LENIENT.decode(token).map_err(|e| bad(&format!(": {e}")))?;
    let syntax = |_| bad(&format!(": {}", koord_api::gojson::syntax_error(&bytes)));
    let token: Value = serde_json::from_slice(&bytes).map_err(syntax)?;
    if token["v"] != "meta.k8s.io/v1" {
        let found = token["v"].as_str().unwrap_or("");
        return Err(bad(&format!(": server does not recognize this encoded version {found}")));
    }
    let start = token["start"].as_str().unwrap_or_default();
    let at = match token["rv"].as_i64() {
        None | Some(0) => {
            return Err(bad(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        Some(revision) => u64::try_from(revision).ok(),
    };
    if start.is_empty() {
        return Err(bad(": encoded start key empty (version meta.k8s.io/v1)"));
    }
    // A start outside the list's own part of the tree.
    if start.split('/').any(|segment| segment == "..") {
        return Err(bad(&format!(": {start}")));
    }
    Ok((start.to_owned(), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_bad_ones_are_refused() {
        let token = encode_continue("a/b\0", Some(7));
        assert_eq!(decode_continue(&token).unwrap(), ("a/b\0".to_owned(), Some(7)));
        assert_eq!(decode_continue(&encode_continue("x", None)).unwrap(), ("x".to_owned(), None));
        for bad in ["!", "e30", &URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#)] {
            assert_eq!(decode_continue(bad).unwrap_err().code, 400, "{bad}");
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let base = ListOptions::default();
        for (options, want) in [
            (
                ListOptions { revision_match: "Exact".into(), ..base.clone() },
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                ListOptions { send_initial_events: Some(true), ..base.clone() },
                "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
            ),
            (
                ListOptions { watch: true, send_initial_events: Some(true), ..base.clone() },
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        ] {
            assert_eq!(options.validate().unwrap_err().message, want);
        }
    }
}
