//! Tools that answer as the vendors' do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Mutex;

use super::*;
use crate::devices::xpu::Status;

/// A machine whose tools answer from a table; what is not in it is refused.
pub(in super::super) struct Fake {
    _dir: tempfile::TempDir,
    root: Root,
    dev: PathBuf,
    pub(in super::super) answers: BTreeMap<&'static str, &'static str>,
    /// What was asked.
    pub(in super::super) asked: Mutex<Vec<String>>,
}

impl Programs for Fake {
    fn run(&self, words: &[&str]) -> Result<String, Fault> {
        let command = words.join(" ");
        self.asked.lock().unwrap().push(command.clone());
        match self.answers.get(command.as_str()) {
            Some(said) if said.starts_with("refused: ") => Err(Fault::Refused(command, (*said).to_owned())),
            Some(&"hangs") => Err(Fault::Hung(command)),
            Some(said) => Ok((*said).to_owned()),
            None => Err(Fault::Refused(command, "not found".to_owned())),
        }
    }
}

impl Fake {
    pub(in super::super) fn new(answers: &[(&'static str, &'static str)]) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        // A device that sits on NUMA node 1, and a register that knows no other.
        let root = Root::host(dir.path());
        let target = root.sys.join("devices/pci0000:c0/0000:c1:00.0");
        fs::create_dir_all(&target).unwrap();
        fs::write(target.join("numa_node"), "1\n").unwrap();
        fs::create_dir_all(root.sys.join("bus/pci/devices")).unwrap();
        symlink(&target, root.sys.join("bus/pci/devices/0000:c1:00.0")).unwrap();
        let dev = dir.path().join("dev");
        fs::create_dir_all(&dev).unwrap();
        let answers = answers.iter().copied().collect();
        Fake { _dir: dir, root, dev, answers, asked: Mutex::default() }
    }

    pub(in super::super) fn machine(&self) -> Machine<'_> {
        Machine { tools: self, root: &self.root, dev: &self.dev, remarks: RefCell::default() }
    }

    fn cards(&self, name: &str) -> Result<Vec<Card>, AskError> {
        VENDORS.iter().find(|vendor| vendor.name == name).unwrap().cards(&self.machine())
    }

    /// The cards that were described.
    fn devices(&self, name: &str) -> Result<Vec<Xpu>, AskError> {
        Ok(self.cards(name)?.into_iter().filter_map(|card| card.told.ok()).collect())
    }

    fn put_device(&self, name: &str) {
        fs::write(self.dev.join(name), "").unwrap();
    }
}

fn resources(xpu: &Xpu) -> Vec<String> {
    xpu.resources.iter().map(|(name, amount)| format!("{name}={amount}")).collect()
}

fn good() -> Option<Status> {
    Some(Status { healthy: true, ..Status::default() })
}

#[test]
fn vendors_are_told_by_the_register() {
    let present = |vendor, product| -> Vec<&str> {
        let id = Identity { vendor, product };
        VENDORS.iter().filter(|vendor| vendor.is_present(&[id])).map(|vendor| vendor.name).collect()
    };
    assert_eq!(present(0x19e5, 0xd802), ["huawei"]);
    assert_eq!(present(0x19e5, 0x1710), [""; 0], "a graphics card of a server's board");
    assert_eq!(present(0x1d22, 0x3684), ["kunlun"]);
    assert_eq!(present(0xcabc, 1), ["cambricon"]);
    assert_eq!(present(0x9999, 1), ["metax"]);
    assert_eq!(present(0x10de, 1), [""; 0]);
}

const NPU_LIST: &str = "\tTotal Count                    : 2\n\n\tNPU ID                         : 0\n\tChip Count                     : 1\n\n\tNPU ID                         : 3\n\tChip Count                     : 1\n";
const NPU_MAP: &str = "\tNPU ID   Chip ID   Chip Logic ID   Chip Name\n\t0        0         0               Ascend 910B3\n\t0        1         -               Mcu\n";
const NPU_MEMORY: &str = "\tNPU ID             : 0\n\tDDR Capacity(MB)   : 0\n\tHBM Capacity(MB)   : 65536\n";
const NPU_BOARD: &str =
    "\tNPU ID             : 0\n\tPCIe Bus Info      : 0000:C1:00.0\n\tChip Fault         : 0\n";

#[test]
fn npus() {
    let mut fake = Fake::new(&[
        ("npu-smi info -l", NPU_LIST),
        ("npu-smi info -m", NPU_MAP),
        ("npu-smi -t memory -i 0", NPU_MEMORY),
        ("npu-smi info -t common -i 0", "\tAicore Count       : 20\n"),
        ("npu-smi info -t board -i 0", NPU_BOARD),
        ("npu-smi info -t board -i 3", "\tPCIe Bus Info      : 0000:C2:00.0\n\tChip Fault         : 2\n"),
    ]);
    for name in ["davinci10", "davinci2", "davinci_manager", "null"] {
        fake.put_device(name);
    }
    let found = fake.devices("huawei").unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].model.as_str(), found[0].uuid.as_str()), ("Ascend-910B3", "npu-0-2"));
    assert_eq!((found[1].uuid.as_str(), found[1].minor.as_str()), ("npu-3-10", "10"), "numbers, not texts");
    assert_eq!(
        resources(&found[0]),
        [
            "huawei.com/npu-core=20",
            "huawei.com/npu-cpu=7",
            "huawei.com/npu-dvpp=100",
            "koordinator.sh/gpu-memory=65536Mi"
        ]
    );
    let place = found[0].topology.clone().unwrap();
    let want = ("-1", "1", "pci0000:c0", "0000:c1:00.0");
    assert_eq!(
        (place.socket_id.as_str(), place.node_id.as_str(), place.pcie_id.as_str(), place.bus_id.as_str()),
        want
    );
    assert_eq!(found[0].status, good());
    let broken = found[1].status.clone().unwrap();
    assert_eq!((broken.healthy, broken.error_code.as_str()), (false, "chip error"));
    assert_eq!(broken.error_message, "NPU index 3 has 2 chip faults");
    assert_eq!(found[1].topology.clone().unwrap().node_id, "0", "the register does not know it");
    // One whose board does not answer.
    fake.answers.remove("npu-smi info -t board -i 0");
    let cards = fake.cards("huawei").unwrap();
    assert_eq!((cards[0].minor.as_str(), cards[1].minor.as_str()), ("2", "10"));
    assert!(cards[0].told.is_err() && cards[1].told.is_ok());
    // Tools that want one word more, and models that tell their AI CPUs.
    fake.answers.insert("npu-smi -t memory -i 0", "refused: Command or option is not found");
    fake.answers.insert("npu-smi info -t memory -i 0", NPU_MEMORY);
    fake.answers.insert("npu-smi info -m", "\tNPU ID\n\t0 0 0 Ascend 910C\n");
    fake.answers
        .insert("npu-smi info -t cpu-num-cfg -i 0", "\tAI CPU number : 5\n\tcontrol CPU number : 1\n");
    let found = fake.devices("huawei").unwrap();
    assert_eq!(
        resources(&found[0]),
        [
            "huawei.com/npu-core=20",
            "huawei.com/npu-cpu=5",
            "huawei.com/npu-dvpp=100",
            "koordinator.sh/gpu-memory=65536Mi"
        ]
    );
    // The small model tells neither.
    fake.answers.insert("npu-smi info -m", "\tNPU ID\n\t0 0 0 Ascend 310P3\n");
    fake.answers.remove("npu-smi info -t common -i 0");
    let found = fake.devices("huawei").unwrap();
    assert_eq!(resources(&found[0])[0], "huawei.com/npu-core=8");
    assert_eq!(resources(&found[0])[3], "koordinator.sh/gpu-memory=21527Mi");
}

/// Cards are paired with device files in order, so a gap would shift all that come after it.
#[test]
fn npus_are_refused_when_files_do_not_match_cards() {
    for (files, want) in [
        (vec![], "tells of 2 cards"),
        (vec!["davinci1", "davinci_manager"], "dev holds 1 files davinciN"),
        (vec!["davinci0", "davinci1", "davinci2"], "dev holds 3 files davinciN"),
    ] {
        let fake = Fake::new(&[
            ("npu-smi info -l", NPU_LIST),
            ("npu-smi info -m", NPU_MAP),
            ("npu-smi -t memory -i 0", NPU_MEMORY),
            ("npu-smi info -t common -i 0", "\tAicore Count       : 20\n"),
            ("npu-smi info -t board -i 0", NPU_BOARD),
            ("npu-smi info -t board -i 3", NPU_BOARD),
        ]);
        for name in &files {
            fake.put_device(name);
        }
        let error = fake.devices("huawei").unwrap_err().to_string();
        assert!(error.contains(want), "{files:?}: {error}");
    }
}

#[test]
fn an_answer_that_lacks_something_is_shown() {
    let fake = Fake::new(&[("npu-smi info -l", NPU_LIST), ("npu-smi info -m", "driver not loaded\n")]);
    assert_eq!(
        fake.devices("huawei").unwrap_err().to_string(),
        "`npu-smi info -m` does not tell the name of a chip in its second line; it said \"driver not loaded\""
    );
    assert_eq!(Fake::new(&[]).devices("metax").unwrap_err().to_string(), "mx-smi --show-hwinfo: not found");
    assert_eq!(Fake::new(&[("xpu_smi -m", "\n")]).devices("kunlun").unwrap(), []);
}

#[test]
fn xpus() {
    let line = "0000:c1:00.0 0 x 0 0 0 0 0 0 0 0 0 0 0 0 0 0 12 32768 0 0 P800 0\n";
    let fake = Fake::new(&[("xpu_smi -m", line), ("xpu_smi -m -d /dev/xpu0", line)]);
    let found = fake.devices("kunlun").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].model.as_str(), found[0].uuid.as_str(), found[0].minor.as_str()),
        ("P800", "xpu-0", "0")
    );
    assert_eq!(resources(&found[0]), ["koordinator.sh/gpu-core=100", "koordinator.sh/gpu-memory=32768Mi"]);
    assert_eq!(found[0].topology.clone().unwrap().pcie_id, "pci0000:c0");
    assert_eq!(found[0].status, good());
}

#[test]
fn mlus() {
    let list = "Card 0 : MLU370-X8 (UUID: a)\nCard 1 : MLU370-X8 (UUID: b)\n";
    let info = "Card 0\n  Physical Memory Usage :\n    Total : 24576 MiB\n    Used : 0 MiB\n";
    let card = "Device : 0a\nUUID : MLU-7\nNUMA node id : 1\nDomain ID : 0000\nBus num : c1\nFunction : 0\nDevice : Good\n";
    let bad = "Device : 00\nUUID : MLU-8\nNUMA node id : 0\nDomain ID : 0000\nBus num : 3b\nFunction : 0\nDevice : Bad\n";
    let fake = Fake::new(&[
        ("cnmon -l", list),
        ("cnmon info", info),
        ("cnmon info -c 0", card),
        ("cnmon info -c 1", bad),
    ]);
    let found = fake.devices("cambricon").unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].model.as_str(), found[0].uuid.as_str()), ("MLU370-X8", "MLU-7"));
    assert_eq!(resources(&found[0]), ["koordinator.sh/gpu-core=100", "koordinator.sh/gpu-memory=24576Mi"]);
    let place = found[0].topology.clone().unwrap();
    assert_eq!(
        (place.node_id.as_str(), place.bus_id.as_str()),
        ("1", "0000:c1:0a.0"),
        "the tool knows the node"
    );
    assert_eq!(found[0].status, good());
    let broken = found[1].status.clone().unwrap();
    assert_eq!((broken.healthy, broken.error_message.as_str()), (false, "Device is unhealthy, status: Bad"));
}

#[test]
fn gpus_of_metax() {
    let hardware = "GPU#0 MXC500 0000:c1:00.0\n  Model Name : MXC500\n  Memory Capacity : 64GB\nGPU#1 MXC500 0000:c2:00.0\n  Model Name : MXC500\n  Memory Capacity : 64GB\n";
    let list = "GPU#10 MXC500 0000:ff:00.0 x UUID: (GPU-ten)\nSGPU#0 a b c d (GPU-part)\nGPU#0 MXC500 0000:c1:00.0 x UUID: (GPU-zero)\nGPU#1 MXC500 0000:c2:00.0 x UUID: (GPU-one)\n";
    let mut fake = Fake::new(&[
        ("mx-smi --show-hwinfo", hardware),
        ("mx-smi --list", list),
        ("mx-smi --show-hwinfo -i 0", "SGPU#0 a b\nGPU#0 MXC500 0000:c1:00.0\n"),
        ("mx-smi --show-hwinfo -i 1", "GPU#1 MXC500 0000:c2:00.0\n"),
        ("mx-smi --count-ecc -i 0", "SRAM Uncorrectable : 1\nDRAM Uncorrectable : 0\nDouble Bit ECC : 0\n"),
    ]);
    let found = fake.devices("metax").unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].uuid.as_str(), found[1].uuid.as_str()), ("GPU-zero", "GPU-one"));
    assert_eq!(resources(&found[1]), ["koordinator.sh/gpu-core=100", "koordinator.sh/gpu-memory=64Gi"]);
    let broken = found[0].status.clone().unwrap();
    assert_eq!((broken.healthy, broken.error_code.as_str()), (false, "ECC error"), "any counter counts");
    assert!(broken.error_message.starts_with("MX index 0 has 1 "), "{}", broken.error_message);
    assert_eq!(found[1].status, good(), "counters that cannot be read");
    assert_eq!(found[1].topology.clone().unwrap().bus_id, "0000:c2:00.0");
    fake.answers.insert("mx-smi --count-ecc -i 0", "hangs");
    let errors: Vec<String> =
        fake.cards("metax").unwrap().into_iter().map(|card| card.told.unwrap_err().to_string()).collect();
    assert_eq!(
        errors,
        ["mx-smi --count-ecc -i 0: did not end in time", "not asked any more, since the tool hangs"]
    );
}
