//! What lists and watches are asked for: selectors, versions and tokens, good and bad, each on its own line.
#![no_main]

use std::sync::{Arc, LazyLock};

use koord_sandbox::server::{Api, ListOptions};
use koord_sandbox::store::Limits;
use libfuzzer_sys::fuzz_target;

static API: LazyLock<Arc<Api>> = LazyLock::new(|| Api::new(Limits::default()));

fuzz_target!(|text: &str| {
    let mut lines = text.lines().map(str::to_owned);
    let mut next = || lines.next().unwrap_or_default();
    let options = ListOptions {
        label_selector: next(),
        field_selector: next(),
        continue_token: next(),
        revision: next(),
        revision_match: next(),
        limit: next().parse().ok(),
        ..ListOptions::default()
    };
    for plural in ["namespaces", "pods"] {
        let kind = API.kind("", plural).expect("built in");
        let Ok(selection) = options.selection(&kind, "", "") else { continue };
        let Ok(page) = API.list_page(&kind, &selection, &options) else { continue };
        if let Some(limit) = options.limit.filter(|limit| *limit > 0) {
            assert!(page.page.items.len() <= limit);
        }
        for item in &page.page.items {
            assert!(selection.matches(item));
        }
    }
});
