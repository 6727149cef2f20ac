use koord_api::slo::defaults;
use proptest::prelude::*;

use super::*;
use crate::decide::sketch::pod;

#[test]
fn masks() {
    for (key, cbm, start, end, want) in [
        ("koordlet-enforce#18.64", 0x3ff, 10, 80, Ok(0xfe)),
        ("koordlet-enforce#18.65", 0x7ff, 10, 50, Ok(0x3c)),
        ("koordlet-enforce#18.66", 0x7ff, 0, 30, Ok(0xf)),
        ("koordlet-enforce#18.67", 0xffff, 0, 30, Ok(0x1f)),
        ("koordlet-enforce#18.68", 0xf_ffff, 20, 45, Ok(0x1f0)),
        ("koordlet-enforce#18.69", 0xff, 0, 1, Ok(0x1)),
        ("koordlet-enforce#18.70", 0xff, 50, 50, Err(ResctrlError::Range { start: 50, end: 50 })),
        ("koordlet-enforce#18.71", 0xfe, 0, 30, Err(ResctrlError::Cbm(0xfe))),
        ("koordlet-enforce#18.72", 0xff, 99, 100, Ok(0x80)),
        ("koordlet-enforce#18.178", 0x7ff, 20, 60, Ok(0x78)),
        ("koordlet-enforce#18.179", 0xf_ffff, 0, 30, Ok(0x3f)),
        ("koordlet-enforce#18.180", 0x7ff, 30, 31, Ok(0x8)),
        ("no ways", 0, 0, 100, Err(ResctrlError::Cbm(0))),
        ("all of 32", u32::MAX, 0, 100, Ok(u32::MAX)),
    ] {
        assert_eq!(l3_mask(cbm, start, end), want, "{key}");
    }
    let texts = ["7ff", "0x7ff", "", "+7"].map(Platform::cbm_of);
    assert_eq!(texts, [Some(0x7ff), None, None, None]);
}

#[test]
fn bandwidths() {
    let of = |vendor, percents: &[i64]| -> Vec<i64> {
        percents.iter().map(|percent| bandwidth(vendor, *percent).unwrap()).collect()
    };
    let percents = [1, 15, 33, 95, 100];
    assert_eq!(of(Vendor::Intel, &percents), [10, 20, 40, 100, 100], "koordlet-enforce#18.73");
    assert_eq!(of(Vendor::Amd, &percents), [1, 24, 52, 152, 2048], "koordlet-enforce#18.74");
    assert_eq!(of(Vendor::Amd, &[10, 99]), [16, 158], "koordlet-enforce#18.182");
    let refused = [0, 101].map(|percent| bandwidth(Vendor::Intel, percent).is_err());
    assert_eq!(refused, [true, true]);
}

fn platform(vendor: Vendor, cbm: u32, ids: &[u32]) -> Platform {
    Platform { vendor, cbm, cache_ids: ids.to_vec(), cache_count: ids.len() }
}

fn of_best_effort(strategy: &ResourceQosStrategy, platform: &Platform) -> Vec<String> {
    let plan = schemata(strategy, platform);
    let be = Place::Resctrl(Arc::from("BE"));
    plan.wishes.iter().filter(|wish| wish.place == be).map(|wish| wish.value.to_string()).collect()
}

#[test]
fn lines_of_classes() {
    let amd = platform(Vendor::Amd, 0xffff, &[0, 16]);
    let want = ["L3:0=1f;16=1f;\n", "MB:0=2048;16=2048;\n"];
    assert_eq!(of_best_effort(&defaults::qos(), &amd), want, "koordlet-enforce#18.183");
    let mut strategy = defaults::qos();
    let be = |strategy: &mut ResourceQosStrategy, start, end, mba| {
        strategy.be_class.as_mut().unwrap().resctrl_qos = Some(ResctrlQos {
            enable: Some(true),
            cat_range_start_percent: start,
            cat_range_end_percent: end,
            mba_percent: mba,
        });
    };
    be(&mut strategy, Some(30), Some(30), Some(45));
    let intel = platform(Vendor::Intel, 0x7ff, &[0, 1]);
    assert_eq!(of_best_effort(&strategy, &intel), ["MB:0=50;1=50;\n"], "koordlet-enforce#18.184");
    for mba in [Some(0), Some(101), None] {
        be(&mut strategy, Some(0), Some(30), mba);
        assert_eq!(of_best_effort(&strategy, &intel), ["L3:0=f;1=f;\n"], "koordlet-enforce#18.181 {mba:?}");
    }
    be(&mut strategy, None, None, None);
    assert_eq!(of_best_effort(&strategy, &intel), Vec::<String>::new());
    let odd = Platform { cache_count: 4, ..intel };
    let plan = schemata(&defaults::qos(), &odd);
    let text = "read resctrl schemata failed, L3 masks has invalid count 2, l3Num 4";
    assert_eq!((plan.wishes.len(), plan.problems[0].1.to_string().as_str()), (0, text));
}

#[test]
fn threads_follow_their_class() {
    let mut strategy = defaults::qos();
    for class in [&mut strategy.lsr_class, &mut strategy.be_class].into_iter().flatten() {
        class.resctrl_qos.as_mut().unwrap().enable = Some(true);
    }
    let pods = [
        pod("lse").qos("LSE").read(),
        pod("ls").qos("LS").read(),
        pod("be").qos("BE").read(),
        pod("own").qos("BE").annotated("node.koordinator.sh/resctrl", "{}").read(),
        pod("system").qos("SYSTEM").read(),
        pod("over").qos("BE").phase("Failed").read(),
    ];
    let present = [(Qos::Be, BTreeSet::from([7]))].into();
    let wishes = tasks(&strategy, &pods, &present, |pod| match &*pod.id.uid {
        "lse" => &[12, 11],
        "be" => &[8, 7, 6],
        _ => &[99],
    });
    let told: Vec<(Place, String)> =
        wishes.into_iter().map(|wish| (wish.place, wish.value.to_string())).collect();
    let group = |name: &str| Place::Resctrl(Arc::from(name));
    assert_eq!(told, [(group("LSR"), "11 12".to_string()), (group("BE"), "6 8".to_string())]);
}

proptest! {
    /// A mask is never empty, never beyond the cache, and without gaps.
    #[test]
    fn masks_are_contiguous(width in 1_u32..=32, start in 0_i64..100, length in 1_i64..=100) {
        let cbm = u32::MAX >> (32 - width);
        let end = (start + length).min(100);
        let mask = l3_mask(cbm, start, end).unwrap();
        prop_assert!(mask != 0 && mask & !cbm == 0);
        prop_assert_eq!((mask >> mask.trailing_zeros()).count_zeros(), 32 - mask.count_ones());
        prop_assert!((mask >> mask.trailing_zeros()).leading_zeros() == 32 - mask.count_ones());
    }
}

#[test]
fn numbers_are_told() {
    let mut strategy = defaults::qos();
    let config = ResctrlQos {
        enable: Some(true),
        cat_range_start_percent: Some(0),
        cat_range_end_percent: Some(30),
        mba_percent: Some(45),
    };
    strategy.be_class.as_mut().unwrap().resctrl_qos = Some(config);
    let platform = Platform { vendor: Vendor::Intel, cbm: 0xfffff, cache_ids: vec![0, 1], cache_count: 2 };
    let plan = schemata(&strategy, &platform);
    let told: Vec<String> = plan.wishes.iter().map(|wish| wish.audit_message(None)).collect();
    let why = "; class BE, enable true: catRange 0 to 30 %, mbaPercent 45; ways fffff of 2 caches";
    for line in ["L3:0=3f;1=3f;", "MB:0=50;1=50;"] {
        assert!(told.contains(&format!("update schemata to {line}{why}")), "{told:?}");
    }
}
