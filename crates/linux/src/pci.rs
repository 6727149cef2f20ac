//! PCI devices as `/sys/bus/pci` shows them: who drives them, where they sit. Spec: koordlet-observe 6.1, 6.2.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Malformed};
use crate::root::Root;
use crate::text;

/// Where a device sits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// A device that belongs to no NUMA node counts for node 0.
    pub numa_node: i32,
    /// The root of the device's bus, such as `pci0000:5d`. Empty when the path tells none.
    pub pcie_root: String,
}

/// Bus ids of the devices that a driver drives, in lower case and in order. A driver that is not loaded drives none.
pub fn driven_by(root: &Root, driver: &str) -> Vec<String> {
    let names = entries(&root.sys.join("bus/pci/drivers").join(driver)).unwrap_or_default();
    let mut ids: Vec<String> = names.iter().filter_map(|name| bus_id(name)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Who made a device, and which one it is, by the numbers of the PCI register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    pub vendor: u16,
    pub product: u16,
}

/// All devices of the machine. Those that do not tell who they are, and a machine without PCI, are left out.
pub fn identities(root: &Root) -> Vec<Identity> {
    let number = |id: &str, file: &str| {
        let content = text::read(&device(root, id).join(file)).ok()?;
        u16::from_str_radix(content.trim().trim_start_matches("0x"), 16).ok()
    };
    let of = |id: &String| Some(Identity { vendor: number(id, "vendor")?, product: number(id, "device")? });
    entries(&devices(root)).unwrap_or_default().iter().filter_map(of).collect()
}

/// `[domain:]bb:dd.f` in lower case; none for anything else.
pub fn bus_id(name: &str) -> Option<String> {
    let is_hex = |word: &str, min: usize, max: usize| {
        (min..=max).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let (place, function) = name.split_once('.')?;
    let (bus, device) = place.rsplit_once(':')?;
    let bus = match bus.split_once(':') {
        Some((domain, bus)) if is_hex(domain, 1, 5) => bus,
        Some(_) => return None,
        None => bus,
    };
    (is_hex(bus, 2, 2) && is_hex(device, 2, 2) && is_hex(function, 1, 1)).then(|| name.to_ascii_lowercase())
}

/// Where a device sits. A device that is not there is an error.
pub fn place(root: &Root, bus_id: &str) -> Result<Place, Error> {
    let dir = device(root, bus_id);
    let path = dir.join("numa_node");
    let content = text::read(&path)?;
    let numa_node: i32 = content.trim().parse().map_err(|_| {
        Error::content(&path, Malformed(format!("cannot parse NUMA node {:?}", content.trim())))
    })?;
    let target = fs::canonicalize(&dir).map_err(|source| Error::read(&dir, source))?;
    Ok(Place { numa_node: if numa_node == -1 { 0 } else { numa_node }, pcie_root: pcie_root(&target) })
}

/// `/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0` hangs on `pci0000:5d`. Longer domains, which hypervisors make
/// up, are no root.
fn pcie_root(target: &Path) -> String {
    let root_of = |part: &str| {
        let address = part.strip_prefix("pci")?;
        let (domain, bus) = (address.get(..4)?, address.get(5..7)?);
        let fits = domain.bytes().all(|byte| byte.is_ascii_digit())
            && address.as_bytes().get(4) == Some(&b':')
            && bus.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| part[..10].to_owned())
    };
    target.components().find_map(|part| root_of(part.as_os_str().to_str()?)).unwrap_or_default()
}

pub(crate) fn devices(root: &Root) -> PathBuf {
    root.sys.join("bus/pci/devices")
}

pub(crate) fn device(root: &Root, bus_id: &str) -> PathBuf {
    devices(root).join(bus_id)
}

/// Names in a directory, in order.
pub(crate) fn entries(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(dir).map_err(|source| Error::read(dir, source))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_that_are_bus_ids() {
        for (name, want) in [
            ("0000:5E:00.0", Some("0000:5e:00.0")),
            ("5e:00.0", Some("5e:00.0")),
            ("10000:5e:00.0", Some("10000:5e:00.0")),
            ("0000:5e:00.10", None),
            ("bind", None),
            ("100000:5e:00.0", None),
            (":5e:00.0", None),
            ("0000:5e:0.0", None),
            ("0000:0000:5e:00.0", None),
        ] {
            assert_eq!(bus_id(name).as_deref(), want, "koordlet-observe#13.4.D20 {name}");
        }
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        assert!(driven_by(&root, "nvidia").is_empty(), "no driver is normal");
        for name in ["0000:5E:00.0", "0000:3b:00.0", "bind", "module"] {
            fs::create_dir_all(root.sys.join("bus/pci/drivers/nvidia").join(name)).unwrap();
        }
        assert_eq!(driven_by(&root, "nvidia"), ["0000:3b:00.0", "0000:5e:00.0"]);
    }

    #[test]
    fn devices_tell_who_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::host(dir.path());
        assert_eq!(identities(&root), [], "no PCI is normal");
        for (id, vendor, product) in [
            ("0000:00:01.0", "0x8086\n", "0x1237\n"),
            ("0000:c1:00.0", "0x19e5\n", "0xd802\n"),
            ("0000:c2:00.0", "\n", "0x1\n"),
        ] {
            fs::create_dir_all(device(&root, id)).unwrap();
            fs::write(device(&root, id).join("vendor"), vendor).unwrap();
            fs::write(device(&root, id).join("device"), product).unwrap();
        }
        fs::create_dir_all(device(&root, "0000:c3:00.0")).unwrap();
        let known =
            [(0x8086, 0x1237), (0x19e5, 0xd802)].map(|(vendor, product)| Identity { vendor, product });
        assert_eq!(identities(&root), known);
    }

    #[test]
    fn roots_in_paths() {
        for (path, want) in [
            // koordlet-observe#13.4.D5
            ("/sys/devices/pci0000:5d/0000:5d:00.0/0000:5e:00.0", "pci0000:5d"),
            // koordlet-observe#13.4.D21
            ("/sys/devices/pci10000:5d/10000:5e:00.0", ""),
            ("/sys/devices/virtual/x", ""),
            ("/sys/devices/pci0000:é", ""),
        ] {
            assert_eq!(pcie_root(Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn devices_know_their_place() {
        for (node, want) in [
            ("1\n", Some(1)),
            // koordlet-observe#13.4.D4
            ("-1\n", Some(0)),
            // koordlet-observe#13.4.D21
            ("x\n", None),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::host(dir.path());
            let target = root.sys.join("devices/pci0000:5d/0000:5e:00.0");
            fs::create_dir_all(&target).unwrap();
            fs::create_dir_all(devices(&root)).unwrap();
            symlink(&target, device(&root, "0000:5e:00.0")).unwrap();
            fs::write(target.join("numa_node"), node).unwrap();
            let found = place(&root, "0000:5e:00.0");
            let wanted = want.map(|numa_node| Place { numa_node, pcie_root: "pci0000:5d".to_owned() });
            assert_eq!(found.ok(), wanted, "{node:?}");
            assert!(place(&root, "0000:5f:00.0").is_err());
        }
    }
}
