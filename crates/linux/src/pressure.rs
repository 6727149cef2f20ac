//! Pressure stall information of a group or of the node. Spec: koordlet-observe 2.5.

use crate::error::Malformed;
use crate::text::{lines, number, shown, words};

/// How long work stood still for want of a resource: percents of time, and microseconds in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stall {
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
    pub total_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// Some task waited.
    pub some: Stall,
    /// All tasks waited. None where the kernel does not tell, as old ones for CPU.
    pub full: Option<Stall>,
}

impl Pressure {
    pub fn parse(content: &[u8]) -> Result<Pressure, Malformed> {
        let (mut some, mut full) = (None, None);
        for line in lines(content) {
            let mut words = words(line);
            match words.next() {
                Some(b"some") => some = Some(stall(line, words)?),
                Some(b"full") => full = Some(stall(line, words)?),
                prefix => {
                    return Err(Malformed(format!(
                        "unknown PSI prefix: {}",
                        shown(prefix.unwrap_or_default())
                    )));
                }
            }
        }
        // Differs: upstream takes a file without `some` and then crashes.
        let some = some.ok_or_else(|| Malformed("PSI file has no line `some`".into()))?;
        Ok(Pressure { some, full })
    }
}

fn stall<'a>(line: &[u8], mut words: impl Iterator<Item = &'a [u8]>) -> Result<Stall, Malformed> {
    let mut value = |key: &[u8]| words.next().and_then(|word| word.strip_prefix(key));
    let values = (value(b"avg10="), value(b"avg60="), value(b"avg300="), value(b"total="));
    let read = || {
        Some(Stall {
            avg10: number(values.0?)?,
            avg60: number(values.1?)?,
            avg300: number(values.2?)?,
            total_us: number(values.3?)?,
        })
    };
    read().ok_or_else(|| Malformed(format!("cannot parse PSI line {:?}", shown(line))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines() {
        let text = b"some avg10=1.50 avg60=0.20 avg300=0.30 total=1000\nfull avg10=0.50 avg60=0.02 avg300=0.03 total=100\n";
        let pressure = Pressure::parse(text).unwrap();
        assert_eq!(pressure.some, Stall { avg10: 1.5, avg60: 0.2, avg300: 0.3, total_us: 1000 });
        assert_eq!(pressure.full, Some(Stall { avg10: 0.5, avg60: 0.02, avg300: 0.03, total_us: 100 }));
    }

    #[test]
    fn what_old_and_odd_kernels_print() {
        // koordlet-observe#13.2.B18
        let some = Pressure::parse(b"some avg10=1.50 avg60=0 avg300=0 total=7\n").unwrap();
        assert_eq!((some.some.avg10, some.full), (1.5, None));
        // koordlet-observe#13.2.B39
        let fault = Pressure::parse(b"foo avg10=1\n").unwrap_err().to_string();
        assert_eq!(fault, "unknown PSI prefix: foo");
        assert!(Pressure::parse(b"some avg10=1 avg60=2\n").is_err());
        assert!(Pressure::parse(b"").is_err());
        assert!(Pressure::parse(b"some avg10=1 avg60=2 avg300=3 total=-4\n").is_err());
    }
}
