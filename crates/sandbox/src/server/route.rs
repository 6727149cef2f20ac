//! From a path to what it names.

use percent_encoding::percent_decode_str;

/// What a path asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    Version,
    /// `/`.
    Root,
    /// `/api`, `/apis`.
    CoreVersions,
    Groups,
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    Resources {
        group: String,
        version: String,
    },
    /// `/openapi/v2`.
    OldOpenApi,
    /// `/openapi/v3` and what is below it.
    OpenApi(String),
    Resource(Place),
    /// Below `/sandbox/`.
    Control(Vec<String>),
    Nowhere,
}

/// Objects, an object, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: String,
    /// Empty for the collection.
    pub name: String,
    pub subresource: String,
    /// The old `/watch/` prefix.
    pub is_watch: bool,
}

pub(super) fn parse(path: &str) -> Route {
    let decode = |part: &str| percent_decode_str(part).decode_utf8().ok().map(|text| text.into_owned());
    let parts = path.split('/').skip(1).map(decode).collect::<Option<Vec<String>>>();
    let Some(mut parts) = parts else { return Route::Nowhere };
    if parts.last().is_some_and(String::is_empty) {
        parts.pop();
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        [] => Route::Root,
        ["version"] => Route::Version,
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group((*group).to_owned()),
        ["api", version] => Route::Resources { group: String::new(), version: (*version).to_owned() },
        ["apis", group, version] => {
            Route::Resources { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["sandbox", rest @ ..] => Route::Control(rest.iter().map(|part| (*part).to_owned()).collect()),
        ["openapi", "v2"] => Route::OldOpenApi,
        ["openapi", "v3", rest @ ..] => Route::OpenApi(rest.join("/")),
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => Route::Nowhere,
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Route {
    let (is_watch, rest) = match rest {
        ["watch", tail @ ..] if !tail.is_empty() => (true, tail),
        _ => (false, rest),
    };
    let (namespace, rest) = match rest {
        // A namespace itself, or a part of it, and not something within.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, tail @ ..] if !tail.is_empty() => (*namespace, tail),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Route::Nowhere,
    };
    if rest.iter().any(|part| part.is_empty()) {
        return Route::Nowhere;
    }
    Route::Resource(Place {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
        is_watch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_places() {
        for (path, want) in [
            ("/api/v1/pods", ("", "v1", "pods", "", "", "")),
            ("/api/v1/namespaces", ("", "v1", "namespaces", "", "", "")),
            ("/api/v1/namespaces/a", ("", "v1", "namespaces", "", "a", "")),
            ("/api/v1/namespaces/a/finalize", ("", "v1", "namespaces", "", "a", "finalize")),
            ("/api/v1/namespaces/a/pods", ("", "v1", "pods", "a", "", "")),
            ("/api/v1/namespaces/a/pods/b/status", ("", "v1", "pods", "a", "b", "status")),
            ("/apis/apps/v1/namespaces/a/deployments/b%2Dc", ("apps", "v1", "deployments", "a", "b-c", "")),
        ] {
            let Route::Resource(p) = parse(path) else { panic!("{path}") };
            let got = (&*p.group, &*p.version, &*p.plural, &*p.namespace, &*p.name, &*p.subresource);
            assert_eq!(got, want, "{path}");
        }
        assert!(matches!(parse("/api/v1/watch/pods"), Route::Resource(Place { is_watch: true, .. })));
        assert_eq!(parse("/apis/apps/v1/"), Route::Resources { group: "apps".into(), version: "v1".into() });
        for nowhere in ["/foo", "/api/v1/namespaces/a/pods/b/c/d", "/api/v1//x", "/api/v1/pods/%ff"] {
            assert_eq!(parse(nowhere), Route::Nowhere, "{nowhere}");
        }
    }
}
