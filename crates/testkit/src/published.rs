//! Documents in `docs/` that are generated from types. `scripts/schemas` writes them; a test holds each against its types.

use std::path::Path;

use serde_json::Value;

/// Set by `scripts/schemas`: documents are written instead of compared.
const WRITE: &str = "INTERCOM_WRITE_SCHEMAS";

/// Asserts that the checked-in document is the generated one.
#[track_caller]
pub fn assert_published(name: &str, document: &Value) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).join(name);
    let generated = format!("{document:#}\n");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, generated).expect("the documents of the checkout can be written");
        return;
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == generated, "docs/{name} is not what the types say; run scripts/schemas");
}
