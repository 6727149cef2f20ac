//! Addresses of nodes and pods: each in use once.

use std::collections::HashSet;
use std::net::Ipv4Addr;

/// Eight million addresses, half of 10.0.0.0/8.
const SIZE: u32 = 1 << 23;

#[derive(Debug)]
pub(super) struct Addresses {
    base: u32,
    next: u32,
    used: HashSet<u32>,
}

impl Addresses {
    pub(super) fn new(base: Ipv4Addr) -> Addresses {
        Addresses { base: u32::from(base), next: 1, used: HashSet::new() }
    }

    /// The address that is known already, or a fresh one. When all are in use, one is used twice.
    pub(super) fn take(&mut self, known: Option<Ipv4Addr>) -> Ipv4Addr {
        if let Some(known) = known {
            self.used.insert(u32::from(known));
            return known;
        }
        for _ in 0..SIZE {
            let address = self.base + self.next % SIZE;
            self.next = (self.next + 1) % SIZE;
            // The first and last of each 256 look like a network's own.
            if !matches!(address & 0xff, 0 | 0xff) && self.used.insert(address) {
                return Ipv4Addr::from(address);
            }
        }
        Ipv4Addr::from(self.base + 1)
    }

    pub(super) fn give_back(&mut self, address: Ipv4Addr) {
        self.used.remove(&u32::from(address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_twice() {
        let mut addresses = Addresses::new(Ipv4Addr::new(10, 128, 0, 0));
        let known = Ipv4Addr::new(10, 128, 0, 2);
        assert_eq!(addresses.take(Some(known)), known);
        let taken: Vec<Ipv4Addr> = (0..300).map(|_| addresses.take(None)).collect();
        assert_eq!(taken[0], Ipv4Addr::new(10, 128, 0, 1));
        assert_eq!(taken[1], Ipv4Addr::new(10, 128, 0, 3));
        assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 300);
        assert!(taken.iter().all(|a| !matches!(a.octets()[3], 0 | 255)));
        addresses.give_back(taken[0]);
        assert!(!taken.contains(&addresses.take(None)), "one given back rests a while");
    }
}
