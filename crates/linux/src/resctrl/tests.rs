use super::*;

fn tree(schemata: &str) -> (tempfile::TempDir, Resctrl) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::host(dir.path());
    fs::create_dir_all(root.resctrl().join("info/L3")).unwrap();
    fs::write(root.resctrl().join("schemata"), schemata).unwrap();
    fs::write(root.resctrl().join("tasks"), "1\n2\n").unwrap();
    (dir, Resctrl::new(&root))
}

#[test]
fn schemata_of_intel_and_amd() {
    for (text, caches, l3, mb) in [
        ("    L3:0=7ff;1=7ff\n    MB:0=100;1=50\n", vec![0, 1], "L3:0=7ff;1=7ff;\n", "MB:0=100;1=50;\n"),
        // Ids of AMD have gaps.
        (
            "    L3:0=1f;16=1f\n    MB:0=2048;16=2048\n",
            vec![0, 16],
            "L3:0=1f;16=1f;\n",
            "MB:0=2048;16=2048;\n",
        ),
        ("L3CODE:0=7ff\nMB:0= 10\nL3:0=f\nSMBA:0=2048\n", vec![0], "L3:0=f;\n", "MB:0=10;\n"),
    ] {
        let schemata = Schemata::parse(text).unwrap();
        assert_eq!(schemata.caches(), caches, "{text}");
        assert_eq!(schemata.line(Schema::L3).unwrap().to_string(), l3, "{text}");
        assert_eq!(schemata.line(Schema::Mb).unwrap().to_string(), mb, "{text}");
    }
    for bad in ["L3", "L3:0", "L3:0=xyz", "MB:a=5", "MB:0=-5"] {
        assert!(Schemata::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn lines_are_written_as_they_are_read() {
    let line = Line::even(Schema::L3, [16, 0], 0x3c);
    assert_eq!(line.to_string(), "L3:0=3c;16=3c;\n");
    assert_eq!(Line::from_text(&line.to_string()), Ok(line));
    assert!(Line::from_text("L2:0=f").is_err());
}

#[test]
fn groups_and_their_tasks() {
    let (dir, resctrl) = tree("L3:0=f\nMB:0=100\n");
    assert!(resctrl.is_usable(), "every mask lets something through");
    resctrl.create("BE").unwrap();
    resctrl.create("BE").unwrap();
    let group = Root::host(dir.path()).resctrl().join("BE");
    fs::write(group.join("schemata"), "L3:0=1\nMB:0=10\n").unwrap();
    fs::write(group.join("tasks"), "").unwrap();
    assert_eq!(resctrl.groups().unwrap(), ["BE"]);
    assert_eq!(resctrl.add_tasks("BE", &[7, 9]).unwrap(), 2);
    assert_eq!(resctrl.tasks("BE").unwrap(), [7, 9]);
    assert_eq!(resctrl.tasks("").unwrap(), [1, 2]);
    assert_eq!(resctrl.schemata("BE").unwrap().line(Schema::L3).unwrap().values, [(0, 1)].into());
    assert!(matches!(resctrl.tasks("LS"), Err(Error::Missing { .. })));
    assert!(resctrl.remove("gone").is_ok());
}

#[test]
fn closed_or_missing_schemata_are_not_usable() {
    for text in ["L3:0=0\nMB:0=100\n", "MB:0=100\n", "L3:0=f\n", "x"] {
        let (_dir, resctrl) = tree(text);
        assert!(!resctrl.is_usable(), "{text}");
    }
    let (dir, resctrl) = tree("x");
    fs::write(Root::host(dir.path()).resctrl().join("info/L3/cbm_mask"), "7ff\n").unwrap();
    assert!(resctrl.is_usable());
    assert_eq!(resctrl.l3_mask().unwrap(), "7ff");
}

#[test]
fn counters_of_a_group() {
    let (dir, resctrl) = tree("L3:0=f\n");
    let data = Root::host(dir.path()).resctrl().join("mon_data");
    // koordlet-observe#13.2.B56: the newline that the kernel prints is no fault.
    for (path, content) in [
        ("mon_L3_01/llc_occupancy", "1024\n"),
        ("mon_L3_01/mbm_local_bytes", "Unavailable\n"),
        ("mon_L3_01/mbm_total_bytes", "7\n"),
        ("mon_L3_00/llc_occupancy", "Error\n"),
        ("mon_sub/llc_occupancy", "5\n"),
    ] {
        let path = data.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let want = [
        Usage { cache: 0, ..Usage::default() },
        Usage { cache: 1, llc_bytes: Some(1024), local_bytes: None, total_bytes: Some(7) },
    ];
    assert_eq!(resctrl.usage("").unwrap(), want);
}
