//! Bodies of requests to the sandbox: any bytes as JSON and as YAML; what could be read is read the same when it comes
//! back, and goes through defaults, admission and rules of its kind without a fall.
#![no_main]

use std::sync::{Arc, LazyLock};

use koord_sandbox::kinds::Kind;
use koord_sandbox::server::decode::{Format, mend, read, read_document};
use koord_sandbox::server::{Api, FieldValidation, WriteOptions};
use koord_sandbox::store::Limits;
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};

static API: LazyLock<Arc<Api>> = LazyLock::new(|| Api::new(Limits::default()));
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime without drivers"));

fuzz_target!(|body: &[u8]| {
    let body = mend(body.to_vec().into());
    let kind = kind_of(&body);
    for format in [Format::Json, Format::Yaml] {
        let Ok(first) = read(&kind, format, &body, FieldValidation::Warn) else { continue };
        let text = first.object.to_string();
        let again = read(&kind, Format::Json, text.as_bytes(), FieldValidation::Warn);
        let again = again.expect("what was read can be read again");
        assert_eq!(again.object, first.object, "{kind:?}");
        let options = WriteOptions { dry_run: true, ..WriteOptions::by("fuzz") };
        // Refused or not, it must come to an end.
        let _ = RUNTIME.block_on(API.create(&kind, "default", first.object, &options));
    }
});

/// The kind that the body names, or a pod.
fn kind_of(body: &[u8]) -> Arc<Kind> {
    let registry = API.registry();
    let tree = read_document(Format::Json, body).unwrap_or_default();
    let found = registry.kinds().find(|kind| tree["kind"] == kind.kind.as_ref());
    found.cloned().unwrap_or_else(|| API.kind("", "pods").expect("pods are built in"))
}
