//! What suppression makes of writes that fail. Spec: koordlet-enforce 5.6.

use super::*;

const QUOTA: &str = "cpu/kubepods/besteffort/cpu.cfs_quota_us";

/// A container whose CPUs cannot be written is no reason to write a quota again and again, which others may have set.
#[test]
fn a_quota_is_given_back_once_whatever_becomes_of_cpus() {
    let mut world = World::new(Version::V1, "", threshold("cpuset"), vec![best_effort("batch")]);
    for dir in ["", "/podbatch"] {
        world.put(&format!("{BE}{dir}/cpuset.cpus"), "0-7\n");
    }
    // A folder in place of the file can be neither read nor written.
    let refusing = world.host("sys/fs/cgroup").join(format!("{BE}/podbatch/batch-main/cpuset.cpus"));
    fs::create_dir_all(refusing).unwrap();
    let file = world.host("sys/fs/cgroup").join(QUOTA);
    fs::create_dir_all(&file).unwrap();
    world.seconds(2, 2.0, &[("batch", 0.2)]);
    fs::remove_dir(&file).unwrap();
    world.put(QUOTA, "50000\n");
    world.seconds(1, 2.0, &[("batch", 0.2)]);
    assert_eq!(world.get(QUOTA), "-1", "what failed is tried again");
    world.put(QUOTA, "60000\n");
    world.seconds(3, 2.0, &[("batch", 0.2)]);
    assert_eq!(world.get(QUOTA), "60000", "what others set is theirs");
}
