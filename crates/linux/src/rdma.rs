//! Network cards that speak RDMA, their ports and their virtual functions. Spec: koordlet-observe 6.3.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::pci::{self, Place, device, devices, entries};
use crate::root::Root;
use crate::text;

/// PCI class of network controllers.
const NETWORK_CLASS: &str = "0x02";

/// A physical card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    pub bus_id: String,
    pub vendor: String,
    pub product: String,
    pub place: Place,
    /// What the RDMA subsystem calls it, such as `mlx5_0`; the first in order of text.
    pub name: String,
    /// Whether every port is up; a card that shows no port is not.
    pub is_active: bool,
    /// Bus ids of its virtual functions, in order of their numbers.
    pub virtual_functions: Vec<String>,
}

/// The cards of this node in order of bus id; and, for each that cannot be read, why.
pub fn cards(root: &Root) -> (Vec<Card>, Vec<Error>) {
    let mut cards = Vec::new();
    let mut faults = Vec::new();
    for bus_id in entries(&devices(root)).unwrap_or_default() {
        match card(root, &bus_id) {
            Ok(found) => cards.extend(found),
            Err(fault) => faults.push(fault),
        }
    }
    (cards, faults)
}

/// None for devices of other kinds, for virtual functions, and for cards without RDMA.
fn card(root: &Root, bus_id: &str) -> Result<Option<Card>, Error> {
    let dir = device(root, bus_id);
    let class = text::read(&dir.join("class")).unwrap_or_default();
    if !class.starts_with(NETWORK_CLASS) || dir.join("physfn").symlink_metadata().is_ok() {
        return Ok(None);
    }
    let Some(name) = entries(&dir.join("infiniband")).unwrap_or_default().into_iter().next() else {
        return Ok(None);
    };
    let code = |file: &str| {
        let content = text::read(&dir.join(file)).unwrap_or_default();
        content.trim().trim_start_matches("0x").to_owned()
    };
    Ok(Some(Card {
        vendor: code("vendor"),
        product: code("device"),
        place: pci::place(root, bus_id)?,
        is_active: is_active(root, &name),
        virtual_functions: virtual_functions(&dir),
        bus_id: bus_id.to_owned(),
        name,
    }))
}

fn is_active(root: &Root, name: &str) -> bool {
    let dir = root.sys.join("class/infiniband").join(name).join("ports");
    let ports = entries(&dir).unwrap_or_default();
    // `4: ACTIVE`
    let is_up = |port: &String| text::read(&dir.join(port).join("state")).is_ok_and(|s| s.contains("ACTIVE"));
    !ports.is_empty() && ports.iter().all(is_up)
}

fn virtual_functions(dir: &Path) -> Vec<String> {
    let count: u32 =
        text::read(&dir.join("sriov_numvfs")).ok().and_then(|s| s.trim().parse().ok()).unwrap_or(0);
    if count == 0 {
        return Vec::new();
    }
    let names = entries(dir).unwrap_or_default();
    let mut functions: Vec<(u32, String)> = names
        .iter()
        .filter_map(|name| {
            let number = name.strip_prefix("virtfn")?.parse().ok()?;
            let target = fs::read_link(dir.join(name)).ok()?;
            Some((number, target.file_name()?.to_str()?.to_owned()))
        })
        .collect();
    functions.sort_unstable();
    functions.into_iter().map(|(_, bus_id)| bus_id).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Tree {
        root: Root,
        _dir: tempfile::TempDir,
    }

    impl Tree {
        fn new() -> Tree {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::host(dir.path());
            fs::create_dir_all(devices(&root)).unwrap();
            Tree { root, _dir: dir }
        }

        fn write(&self, path: &str, content: &str) {
            let path = self.root.sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// A device with its class.
        fn device(&self, bus_id: &str, class: &str) {
            let target = format!("devices/pci0000:1e/{bus_id}");
            for (file, content) in
                [("class", class), ("vendor", "0x15b3\n"), ("device", "0x101d\n"), ("numa_node", "1\n")]
            {
                self.write(&format!("{target}/{file}"), content);
            }
            symlink(self.root.sys.join(&target), device(&self.root, bus_id)).unwrap();
        }

        fn name(&self, bus_id: &str, name: &str, states: &[&str]) {
            self.write(&format!("devices/pci0000:1e/{bus_id}/infiniband/{name}/node_type"), "1: CA\n");
            for (port, state) in states.iter().enumerate() {
                self.write(&format!("class/infiniband/{name}/ports/{}/state", port + 1), state);
            }
        }
    }

    #[test]
    fn only_physical_cards_with_rdma_count() {
        let tree = Tree::new();
        tree.device("0000:1f:00.0", "0x020000\n");
        tree.name("0000:1f:00.0", "mlx5_2", &["4: ACTIVE\n"]);
        tree.name("0000:1f:00.0", "mlx5_10", &["4: ACTIVE\n", "4: ACTIVE\n"]);
        tree.device("0000:20:00.0", "0x020700\n");
        tree.name("0000:20:00.0", "mlx5_3", &["4: ACTIVE\n", "1: DOWN\n"]);
        tree.device("0000:21:00.0", "0x020000\n");
        tree.device("0000:22:00.0", "0x030200\n");
        tree.name("0000:22:00.0", "mlx5_4", &["4: ACTIVE\n"]);
        for (number, bus_id) in [(10, "0000:1f:00.4"), (2, "0000:1f:00.3"), (1, "0000:1f:00.2")] {
            tree.device(bus_id, "0x020000\n");
            tree.name(bus_id, &format!("mlx5_vf{number}"), &["4: ACTIVE\n"]);
            let own = device(&tree.root, "0000:1f:00.0");
            symlink(&own, device(&tree.root, bus_id).join("physfn")).unwrap();
            symlink(format!("../{bus_id}"), own.join(format!("virtfn{number}"))).unwrap();
        }
        let (found, faults) = cards(&tree.root);
        assert!(faults.is_empty(), "{faults:?}");
        let shown: Vec<(&str, &str, bool)> =
            found.iter().map(|card| (&*card.bus_id, &*card.name, card.is_active)).collect();
        assert_eq!(shown, [("0000:1f:00.0", "mlx5_10", true), ("0000:20:00.0", "mlx5_3", false)]);
        assert_eq!(found[0].place, Place { numa_node: 1, pcie_root: "pci0000:1e".to_owned() });
        assert_eq!((&*found[0].vendor, &*found[0].product), ("15b3", "101d"));
        assert!(found[0].virtual_functions.is_empty(), "none are switched on");
        tree.write("devices/pci0000:1e/0000:1f:00.0/sriov_numvfs", "3\n");
        let (found, _) = cards(&tree.root);
        assert_eq!(found[0].virtual_functions, ["0000:1f:00.2", "0000:1f:00.3", "0000:1f:00.4"]);
    }

    #[test]
    fn a_card_that_cannot_be_placed_is_told_and_left_out() {
        let tree = Tree::new();
        assert!(cards(&Root::host("/nowhere")).0.is_empty());
        tree.device("0000:1f:00.0", "0x020000\n");
        tree.name("0000:1f:00.0", "mlx5_0", &[]);
        tree.write("devices/pci0000:1e/0000:1f:00.0/numa_node", "x");
        let (found, faults) = cards(&tree.root);
        assert!(found.is_empty());
        assert_eq!(faults.len(), 1);
    }
}
