//! What manuals show of the manager's configuration is read as they say.

use std::collections::BTreeMap;
use std::path::Path;

use koord_api::slo::SloConfig;
use serde_json::Value;

#[test]
fn host_applications() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/koordlet.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let section = manual.split_once("\n## Host applications\n").unwrap().1;
    let block = section.split_once("```yaml\n").unwrap().1.split_once("```").unwrap().0;
    let object: Value = serde_saphyr::from_str(block).unwrap();
    let data: BTreeMap<String, String> = serde_json::from_value(object["data"].clone()).unwrap();
    let mut config = SloConfig::default();
    let loaded = config.load(Some(&data));
    assert!(loaded.events.is_empty(), "{:?}", loaded.events);
    let rules = config.host_applications.rules().unwrap();
    let names = |labels: &[(&str, &str)]| {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let found = rules.for_node(&labels).applications.clone();
        found.iter().map(|application| application.name.clone()).collect::<Vec<String>>()
    };
    assert_eq!(names(&[]), ["nginx"]);
    assert_eq!(names(&[("pool", "storage")]), ["chunkserver"]);
}
