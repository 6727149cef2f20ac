//! Go's JSON: what was read is written as text that reads back the same, whatever it is read into.
#![no_main]

use koord_api::crd::node_slo::NodeSloSpec;
use koord_api::gojson;
use koord_api::quantity::ResourceList;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(value) = gojson::parse(text) else { return };
    assert_eq!(gojson::parse(&value.to_string()).expect("own text reads"), value);
    if let Ok(spec) = value.decode::<NodeSloSpec>() {
        let written = gojson::to_string(&spec).expect("plain JSON types");
        assert_eq!(gojson::from_str::<NodeSloSpec>(&written).expect("own text reads"), spec);
    }
    if let Ok(list) = value.decode::<ResourceList>() {
        let written = gojson::to_string(&list).expect("plain JSON types");
        assert_eq!(gojson::from_str::<ResourceList>(&written).expect("own text reads"), list);
    }
});
