use std::os::unix::fs::symlink;

use super::*;

struct Tree {
    dir: tempfile::TempDir,
    root: Root,
}

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        fs::create_dir_all(root.sys.join("class/block")).unwrap();
        Tree { dir, root }
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// `at` is the directory below `/sys/devices`, `vdb` or `vdb/vdb1`.
    fn device(&self, at: &str, number: &str) {
        self.put(&format!("sys/devices/{at}/dev"), &format!("{number}\n"));
        let name = at.rsplit('/').next().unwrap();
        if at.contains('/') {
            self.put(&format!("sys/devices/{at}/partition"), "1\n");
        }
        symlink(format!("../../devices/{at}"), self.root.sys.join("class/block").join(name)).unwrap();
    }

    fn volume(&self, name: &str, mapped: &str, slaves: &[&str]) {
        self.device(name, "252:0");
        self.put(&format!("sys/devices/{name}/dm/name"), &format!("{mapped}\n"));
        self.put(&format!("sys/devices/{name}/dm/uuid"), "LVM-abc\n");
        for slave in slaves {
            fs::create_dir_all(self.root.sys.join(format!("devices/{name}/slaves/{slave}"))).unwrap();
        }
    }
}

fn number(device: Option<Device>) -> String {
    device.map(|device| device.to_string()).unwrap_or_default()
}

#[test]
fn partitions_lie_on_their_disk() {
    let tree = Tree::new();
    // koordlet-observe#13.2.B27
    tree.device("vdb", "253:16");
    tree.device("vdb/vdb3", "253:19");
    // koordlet-observe#13.2.B46
    tree.device("nvme0n1", "259:0");
    tree.device("nvme1n1", "259:3");
    tree.device("nvme1n1/nvme1n1p1", "259:4");
    let storage = Storage::read(&tree.root).unwrap();
    for (device, want) in
        [("/dev/vdb", "253:16"), ("/dev/vdb3", "253:16"), ("/dev/nvme1n1p1", "259:3"), ("/dev/x", "")]
    {
        assert_eq!(number(storage.disk_of_device(device)), want, "{device}");
    }
    assert_eq!(storage.partitions["/dev/nvme1n1p1"], "/dev/nvme1n1");
}

#[test]
fn volumes_lie_on_the_disk_of_their_group() {
    let tree = Tree::new();
    for (name, at) in [("vdb", "253:16"), ("vdc", "253:32"), ("vdd", "253:48")] {
        tree.device(name, at);
    }
    tree.device("vdb/vdb1", "253:17");
    tree.volume("dm-0", "vg0-data", &["vdb1"]);
    // Over two disks, and over a device that nobody knows.
    // koordlet-observe#13.2.B47
    tree.volume("dm-1", "pool--1-a", &["vdc", "vdd"]);
    tree.volume("dm-2", "p3-a", &["zzz"]);
    tree.volume("dm-3", "vg0-thin", &["dm-0"]);
    tree.put("proc/1/mounts", "/dev/mapper/vg0-data /var/lib/a\\040b ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/vdc /mnt xfs rw 0 0\n");
    let storage = Storage::read(&tree.root).unwrap();
    assert_eq!(number(storage.disk_of_group("vg0")), "253:16");
    assert_eq!(storage.groups.len(), 1, "{:?}", storage.groups);
    assert_eq!(storage.volumes["/dev/mapper/pool--1-a"], "pool-1");
    assert_eq!(number(storage.disk_of_mount("/var/lib/a b")), "253:16");
    assert_eq!(number(storage.disk_of_mount("/mnt")), "253:32");
    assert_eq!(number(storage.disk_of_mount("/proc")), "");
}

#[test]
fn names_of_volumes() {
    // koordlet-observe#13.2.B28
    assert_eq!(mapper_path("pool-0", "lv-1"), "/dev/mapper/pool--0-lv--1");
    for (mapped, group) in [("pool--0-lv--1", Some("pool-0")), ("vg0-data", Some("vg0")), ("plain", None)] {
        assert_eq!(group_of(mapped).as_deref(), group, "{mapped}");
    }
}

#[test]
fn a_node_without_disks_has_none() {
    let tree = Tree::new();
    assert_eq!(Storage::read(&tree.root).unwrap(), Storage::default());
}
