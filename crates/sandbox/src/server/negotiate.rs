//! What the client sends and wants back: content types and their parameters.

use super::decode::Format;
use crate::kinds::Kind;
use crate::status::ApiError;

/// Read in bodies where the type is known; never written.
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The shape of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    #[default]
    Object,
    Table,
    /// Metadata alone, of one object or of a list.
    Metadata,
}

/// How to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub format: Format,
    pub shape: Shape,
    pub pretty: bool,
    /// Metadata was asked for in the form of one object.
    pub of_one: bool,
}

impl Wanted {
    /// A list cannot be shown as the metadata of one object.
    pub(super) fn check_list(&self, kind: &Kind) -> Result<(), ApiError> {
        if self.shape != Shape::Metadata || !self.of_one {
            return Ok(());
        }
        let found = match kind.custom {
            Some(_) => "unstructured.UnstructuredList".to_owned(),
            None => {
                let package = kind.group.split('.').next().filter(|p| !p.is_empty()).unwrap_or("core");
                format!("{package}.{}List", kind.kind)
            }
        };
        let text =
            format!("you requested PartialObjectMetadata, but the requested object is a list (*{found})");
        Err(ApiError::new(406, "NotAcceptable", text))
    }
}

/// One clause of an Accept header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut list: Vec<Clause<'_>> = accept
        .split(',')
        .filter_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().filter(|m| !m.is_empty())?;
            let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
            let quality = parameters.iter().find(|(k, _)| *k == "q").and_then(|(_, v)| v.parse().ok());
            Some(Clause { media, parameters, quality: quality.unwrap_or(1.0) })
        })
        .collect();
    // Stable: equal clauses keep the client's order.
    list.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    list
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find(|(k, _)| *k == name).map_or("", |(_, v)| v.trim_matches('"'))
    }

    fn format(&self) -> Option<Format> {
        match self.media {
            "application/json" | "application/*" | "*/*" => Some(Format::Json),
            "application/yaml" => Some(Format::Yaml),
            _ => None,
        }
    }

    fn shape(&self) -> Option<Shape> {
        let is_meta =
            self.parameter("g") == "meta.k8s.io" && ["v1", "v1beta1"].contains(&self.parameter("v"));
        match self.parameter("as") {
            "" => Some(Shape::Object),
            "Table" if is_meta => Some(Shape::Table),
            "PartialObjectMetadata" | "PartialObjectMetadataList" if is_meta => Some(Shape::Metadata),
            _ => None,
        }
    }
}

/// What the route of a built-in resource can produce at all.
pub(super) fn check_route(header: &str, is_collection: bool) -> Result<(), ApiError> {
    let is_known = |media: &str| ["*/*", "application/json", "application/yaml", PROTOBUF].contains(&media);
    if header.trim().is_empty() || clauses(header).iter().any(|clause| is_known(clause.media)) {
        return Ok(());
    }
    let streams = match is_collection {
        true => ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        false => "",
    };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {ACCEPTED}{streams}");
    Err(ApiError::new(406, "NotAcceptable", message).with_causes(Vec::new()))
}

/// Chooses the answer for a resource.
pub(super) fn accept(header: &str) -> Result<Wanted, ApiError> {
    if header.trim().is_empty() {
        return Ok(Wanted { format: Format::Json, shape: Shape::Object, pretty: false, of_one: false });
    }
    for clause in clauses(header) {
        if let (Some(format), Some(shape)) = (clause.format(), clause.shape()) {
            let of_one = clause.parameter("as") == "PartialObjectMetadata";
            return Ok(Wanted { format, shape, pretty: clause.parameter("pretty") == "1", of_one });
        }
    }
    Err(ApiError::not_acceptable(ACCEPTED))
}

/// Discovery has two forms, and no third.
pub(super) fn check_discovery(header: &str) -> Result<(), ApiError> {
    let is_known = |clause: &Clause<'_>| clause.format().is_some() && clause.parameter("as").is_empty();
    let has_known = clauses(header).iter().any(is_known);
    match header.trim().is_empty() || has_known || aggregated_discovery(header).is_some() {
        true => Ok(()),
        false => Err(ApiError::not_acceptable(ACCEPTED)),
    }
}

/// Whether the client prefers aggregated discovery: the version it knows (`v2`).
pub(super) fn aggregated_discovery(header: &str) -> Option<&'static str> {
    clauses(header).iter().find_map(|clause| {
        let is_list = clause.parameter("g") == "apidiscovery.k8s.io"
            && clause.parameter("as") == "APIGroupDiscoveryList"
            && clause.format() == Some(Format::Json);
        match (clause.parameter("as"), is_list, clause.parameter("v")) {
            (_, true, "v2") => Some(Some("v2")),
            // An earlier plain clause wins.
            ("", _, _) if clause.format() == Some(Format::Json) => Some(None),
            _ => None,
        }
    })?
}

/// The format of a body that is an object.
pub(super) fn content_type(header: &str) -> Result<Format, ApiError> {
    match media(header) {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        _ => Err(ApiError::unsupported_media_type(ACCEPTED)),
    }
}

/// The media type without parameters.
pub(super) fn media(header: &str) -> &str {
    header.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_chosen_as_kubernetes_chooses() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        for (header, want) in [
            ("", Some(Shape::Object)),
            ("*/*", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Shape::Object)),
            ("application/vnd.kubernetes.protobuf", None),
            (table, Some(Shape::Table)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Shape::Metadata)),
            ("application/json;as=Nonsense;g=meta.k8s.io;v=v1,application/json", Some(Shape::Object)),
            ("text/html", None),
        ] {
            assert_eq!(accept(header).ok().map(|w| w.shape), want, "{header}");
        }
        assert_eq!(accept("application/yaml").unwrap().format, Format::Yaml);
        assert_eq!(accept("application/json;q=0.1, application/yaml").unwrap().format, Format::Yaml);
    }

    #[test]
    fn discovery_is_aggregated_when_preferred() {
        let header = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert_eq!(aggregated_discovery(header), Some("v2"));
        assert_eq!(aggregated_discovery("application/json"), None);
        assert_eq!(aggregated_discovery(""), None);
    }
}
