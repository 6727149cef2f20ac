//! Amounts as people read them: `2.5` cores, `1.5Gi`, `3` devices.

use koord_api::quantity::Family;
use koord_api::resource::{ResourceId, ResourceTable};

/// Suffixes of bytes from the largest down, each 1024 of the next.
const SUFFIXES: [(&str, u32); 6] = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

fn is_bytes(table: &ResourceTable, id: ResourceId) -> bool {
    table.quantity(id, 0).family() == Family::BinarySi
}

/// An amount in the resource's own units. Bytes are cut to two decimals, downwards.
pub(super) fn readable(table: &ResourceTable, resource: &str, units: i64) -> String {
    match table.id(resource) {
        Some(ResourceId::CPU) if units.unsigned_abs() < 1000 && units != 0 => format!("{units}m"),
        Some(ResourceId::CPU) => decimal(units, 1000, 3),
        Some(id) if is_bytes(table, id) => bytes(units),
        _ => units.to_string(),
    }
}

/// Both amounts, told apart: exactly where the short form would read alike.
pub(super) fn readable_pair(table: &ResourceTable, resource: &str, a: i64, b: i64) -> (String, String) {
    let (short_a, short_b) = (readable(table, resource, a), readable(table, resource, b));
    if a != b && short_a == short_b { (a.to_string(), b.to_string()) } else { (short_a, short_b) }
}

/// The largest amount up to `units` that is easy to write: whole megabytes, everything else as it is.
pub(super) fn round_down(table: &ResourceTable, id: ResourceId, units: i64) -> i64 {
    const MEGABYTE: i64 = 1 << 20;
    if is_bytes(table, id) && units >= MEGABYTE { units / MEGABYTE * MEGABYTE } else { units }
}

/// An amount as manifests have it.
pub(super) fn exact(table: &ResourceTable, id: ResourceId, units: i64) -> String {
    table.quantity(id, units).to_string()
}

fn bytes(units: i64) -> String {
    let size = units.unsigned_abs();
    match SUFFIXES.iter().find(|(_, bits)| size >> bits > 0) {
        Some((suffix, bits)) => {
            let hundredths = (i128::from(units) * 100) >> bits;
            format!("{}{suffix}", decimal(i64::try_from(hundredths).unwrap_or(i64::MAX), 100, 2))
        }
        None => units.to_string(),
    }
}

/// `units / per` with as many decimals as it needs.
fn decimal(units: i64, per: u64, digits: usize) -> String {
    let sign = if units < 0 { "-" } else { "" };
    let (whole, rest) = (units.unsigned_abs() / per, units.unsigned_abs() % per);
    match rest {
        0 => format!("{sign}{whole}"),
        rest => {
            let rest = format!("{rest:0digits$}");
            format!("{sign}{whole}.{}", rest.trim_end_matches('0'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let table = ResourceTable::new();
        for (resource, units, want) in [
            ("cpu", 2500, "2.5"),
            ("cpu", 250, "250m"),
            ("cpu", 0, "0"),
            ("cpu", -500, "-500m"),
            ("cpu", 16_000, "16"),
            ("memory", 3 << 29, "1.5Gi"),
            ("memory", (1 << 30) - 1, "1023.99Mi"),
            ("memory", 200, "200"),
            ("memory", i64::MAX, "7.99Ei"),
            ("pods", 110, "110"),
            ("example.com/foo", 3, "3"),
        ] {
            assert_eq!(readable(&table, resource, units), want, "{resource} {units}");
        }
        let gib = 1 << 30;
        assert_eq!(readable_pair(&table, "memory", gib + 1, gib).0, "1073741825");
        assert_eq!(readable_pair(&table, "memory", 2 * gib, gib), ("2Gi".to_owned(), "1Gi".to_owned()));
        assert_eq!(exact(&table, ResourceId::MEMORY, round_down(&table, ResourceId::MEMORY, gib + 5)), "1Gi");
        assert_eq!(round_down(&table, ResourceId::MEMORY, 700), 700);
        assert_eq!(exact(&table, ResourceId::CPU, 2500), "2500m");
    }
}
