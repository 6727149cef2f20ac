//! Usage profiles: how much a pod uses at a moment, and the texts that say so.
//!
//! Pure: the same profile gives the same amount at the same time. A new profile is a variant here, an
//! arm in `parse` and one in `at`.

use std::sync::Arc;

use koord_api::duration::GoDuration;
use koord_api::quantity::Quantity;

/// What is measured, and so in which units: thousandths of a core or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    Cpu,
    Memory,
}

/// So much, or a share of what the pod requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Units(i64),
    /// 1.0 is all of the request.
    Share(f64),
}

/// How use changes with time.
#[derive(Clone, Debug, PartialEq)]
pub enum Profile {
    Constant(Amount),
    Wave(Arc<Wave>),
    Burst(Arc<Burst>),
    Trace(Arc<Trace>),
}

/// From `min` to `max` and back, once per period; lowest at the start of a period counted from 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Wave {
    pub min: Amount,
    pub max: Amount,
    pub period_seconds: f64,
    /// Moves the lowest point to this much later.
    pub phase_seconds: f64,
}

/// `peak` for `length` at the start of every `every`, otherwise `base`.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    pub base: Amount,
    pub peak: Amount,
    pub every_seconds: f64,
    pub length_seconds: f64,
    pub phase_seconds: f64,
}

/// Measured amounts by seconds from the pod's start, straight lines between them; begins again at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Ascending, not empty.
    points: Vec<(f64, Amount)>,
}

/// A profile as a text names it.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    Profile(Profile),
    /// A trace in a ConfigMap of the pod's namespace.
    TraceIn {
        config_map: String,
        key: String,
    },
}

/// Moments that a profile is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seconds since 1970 in the fleet's own time.
    pub time: f64,
    /// Seconds since the pod began to run, in the same time.
    pub age: f64,
}

const ACCEPTED: &str = "an amount (500m, 60%), wave:min=…,max=…,period=…,phase=…, \
                        burst:base=…,peak=…,every=…,for=…,phase=… or trace:CONFIGMAP/KEY";

/// Reads a profile; the error is what would be accepted.
pub fn parse(measure: Measure, text: &str) -> Result<Wanted, String> {
    let text = text.trim();
    let profile = match text.split_once(':') {
        None => Profile::Constant(amount(measure, text).ok_or(ACCEPTED)?),
        Some(("wave", rest)) => Profile::Wave(Arc::new(wave(measure, rest)?)),
        Some(("burst", rest)) => Profile::Burst(Arc::new(burst(measure, rest)?)),
        Some(("trace", rest)) => {
            let (config_map, key) = rest.split_once('/').ok_or("trace:CONFIGMAP/KEY")?;
            if config_map.is_empty() || key.is_empty() {
                return Err("trace:CONFIGMAP/KEY".to_owned());
            }
            return Ok(Wanted::TraceIn { config_map: config_map.to_owned(), key: key.to_owned() });
        }
        Some(_) => return Err(ACCEPTED.to_owned()),
    };
    Ok(Wanted::Profile(profile))
}

/// `500m`, `2Gi` or `60%`.
pub fn amount(measure: Measure, text: &str) -> Option<Amount> {
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().ok()?;
        return (percent.is_finite() && percent >= 0.0).then_some(Amount::Share(percent / 100.0));
    }
    let quantity: Quantity = text.parse().ok()?;
    let units = match measure {
        Measure::Cpu => quantity.milli_value(),
        Measure::Memory => quantity.value(),
    };
    (units >= 0).then_some(Amount::Units(units))
}

fn wave(measure: Measure, text: &str) -> Result<Wave, String> {
    let mut fields = Fields::new(measure, text)?;
    let wave = Wave {
        min: fields.amount("min")?.unwrap_or(Amount::Share(0.2)),
        max: fields.amount("max")?.unwrap_or(Amount::Share(0.8)),
        period_seconds: fields.seconds("period")?.unwrap_or(86_400.0),
        phase_seconds: fields.seconds("phase")?.unwrap_or(0.0),
    };
    fields.finish("min, max, period, phase")?;
    match wave.period_seconds > 0.0 {
        true => Ok(wave),
        false => Err("a period above 0".to_owned()),
    }
}

fn burst(measure: Measure, text: &str) -> Result<Burst, String> {
    let mut fields = Fields::new(measure, text)?;
    let burst = Burst {
        base: fields.amount("base")?.unwrap_or(Amount::Share(0.1)),
        peak: fields.amount("peak")?.unwrap_or(Amount::Share(1.0)),
        every_seconds: fields.seconds("every")?.unwrap_or(600.0),
        length_seconds: fields.seconds("for")?.unwrap_or(60.0),
        phase_seconds: fields.seconds("phase")?.unwrap_or(0.0),
    };
    fields.finish("base, peak, every, for, phase")?;
    match burst.every_seconds > 0.0 && burst.length_seconds <= burst.every_seconds {
        true => Ok(burst),
        false => Err("every above 0, and for no longer than every".to_owned()),
    }
}

/// `name=value` pairs, each taken once.
struct Fields<'a> {
    measure: Measure,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Fields<'a> {
    fn new(measure: Measure, text: &'a str) -> Result<Fields<'a>, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let pairs: Option<Vec<_>> = parts.map(|part| part.split_once('=')).collect();
        Ok(Fields { measure, pairs: pairs.ok_or("name=value pairs separated by commas")? })
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.pairs.iter().position(|(key, _)| *key == name)?;
        Some(self.pairs.remove(at).1)
    }

    fn amount(&mut self, name: &str) -> Result<Option<Amount>, String> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let wanted = || format!("an amount such as 500m or 60% for {name}");
        amount(self.measure, text).map(Some).ok_or_else(wanted)
    }

    fn seconds(&mut self, name: &str) -> Result<Option<f64>, String> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let duration = text.parse::<GoDuration>().ok().and_then(GoDuration::to_std);
        let wanted = || format!("a duration such as 10m or 24h for {name}");
        duration.map(|duration| Some(duration.as_secs_f64())).ok_or_else(wanted)
    }

    fn finish(self, known: &str) -> Result<(), String> {
        if self.pairs.is_empty() { Ok(()) } else { Err(format!("only {known}, each once")) }
    }
}

impl Trace {
    /// Reads `seconds,value` lines; a first line of words is a heading, `#` begins a comment. The error
    /// says which line is wrong.
    pub fn parse(measure: Measure, text: &str) -> Result<Trace, String> {
        let mut points: Vec<(f64, Amount)> = Vec::new();
        let mut may_be_heading = true;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match point(measure, line) {
                Some(point) if points.last().is_none_or(|last| last.0 < point.0) => points.push(point),
                Some(_) => return Err(format!("line {}: seconds must ascend", number + 1)),
                None if may_be_heading && line.starts_with(|c: char| c.is_alphabetic()) => {}
                None => return Err(format!("line {}: expected seconds,value", number + 1)),
            }
            may_be_heading = false;
        }
        if points.is_empty() { Err("no lines".to_owned()) } else { Ok(Trace { points }) }
    }

    fn at(&self, age: f64, request: i64) -> f64 {
        let (Some(first), Some(last)) = (self.points.first(), self.points.last()) else { return 0.0 };
        let length = last.0 - first.0;
        let at = if length > 0.0 { first.0 + age.max(0.0) % length } else { first.0 };
        let next = self.points.partition_point(|(seconds, _)| *seconds <= at);
        let before = self.points[next.saturating_sub(1)];
        let Some(after) = self.points.get(next) else { return before.1.of(request) };
        let share = (at - before.0) / (after.0 - before.0);
        let (from, to) = (before.1.of(request), after.1.of(request));
        from + (to - from) * share
    }
}

fn point(measure: Measure, line: &str) -> Option<(f64, Amount)> {
    let (seconds, value) = line.split_once(',')?;
    let seconds: f64 = seconds.trim().parse().ok()?;
    let value = amount(measure, value.trim())?;
    (seconds.is_finite() && seconds >= 0.0).then_some((seconds, value))
}

impl Amount {
    fn of(self, request: i64) -> f64 {
        match self {
            Amount::Units(units) => float(units),
            Amount::Share(share) => float(request) * share,
        }
    }
}

impl Profile {
    /// Units used at a moment by a pod that requests so many.
    pub fn at(&self, moment: Moment, request: i64) -> i64 {
        let amount = match self {
            Profile::Constant(amount) => amount.of(request),
            Profile::Wave(wave) => {
                let turn = (moment.time - wave.phase_seconds) / wave.period_seconds;
                let (min, max) = (wave.min.of(request), wave.max.of(request));
                min + (max - min) * (1.0 - (turn * std::f64::consts::TAU).cos()) / 2.0
            }
            Profile::Burst(burst) => {
                let within = (moment.time - burst.phase_seconds).rem_euclid(burst.every_seconds);
                let amount = if within < burst.length_seconds { burst.peak } else { burst.base };
                amount.of(request)
            }
            Profile::Trace(trace) => trace.at(moment.age, request),
        };
        whole(amount)
    }
}

/// Counts below 2^53 are exact; above, a billionth more or less does not matter.
#[expect(clippy::cast_precision_loss, reason = "amounts of a simulation")]
pub(crate) fn float(units: i64) -> f64 {
    units as f64
}

/// Rounded to the nearest whole unit; what is no number is none.
#[expect(clippy::cast_possible_truncation, reason = "Rust's cast stays at the limits")]
pub(crate) fn whole(amount: f64) -> i64 {
    amount.round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Profile {
        match parse(Measure::Cpu, text).unwrap() {
            Wanted::Profile(profile) => profile,
            Wanted::TraceIn { .. } => panic!("{text} is a trace"),
        }
    }

    #[test]
    fn amounts_over_time() {
        let hours = |h: f64| h * 3600.0;
        let day = "wave:min=20%,max=80%,period=24h";
        let late = "wave:min=20%,max=80%,phase=6h";
        let burst = "burst:base=100m,peak=2,every=10m,for=1m";
        for (text, time, want) in [
            ("500m", 0.0, 500),
            ("1.5", 9.0, 1500),
            ("60%", 0.0, 600),
            ("150%", 0.0, 1500),
            (day, 0.0, 200),
            (day, hours(6.0), 500),
            (day, hours(12.0), 800),
            (day, hours(24.0 * 365.0), 200),
            (late, hours(6.0), 200),
            (late, hours(18.0), 800),
            (burst, 0.0, 2000),
            (burst, 59.0, 2000),
            (burst, 60.0, 100),
            (burst, 601.0, 2000),
        ] {
            assert_eq!(profile(text).at(Moment { time, age: 0.0 }, 1000), want, "{text} at {time}");
        }
    }

    #[test]
    fn traces_repeat_from_the_pods_start() {
        let trace = Trace::parse(Measure::Memory, "seconds,bytes\n0,1Gi\n\n# a comment\n10, 2Gi\n20,100%\n");
        let profile = Profile::Trace(Arc::new(trace.unwrap()));
        let gib = 1 << 30;
        for (age, want) in [(0.0, gib), (5.0, gib * 3 / 2), (10.0, 2 * gib), (15.0, 3 * gib), (20.0, gib)] {
            assert_eq!(profile.at(Moment { time: 7.0, age }, 4 * gib), want, "at {age}");
        }
        let one = Profile::Trace(Arc::new(Trace::parse(Measure::Cpu, "0,1").unwrap()));
        assert_eq!(one.at(Moment { time: 0.0, age: 1e9 }, 0), 1000);
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "",
            "abc",
            "-1",
            "-5%",
            "NaN%",
            "saw:min=1",
            "wave:min",
            "wave:low=1",
            "wave:period=0s",
            "wave:period=1",
            "wave:min=x",
            "wave:min=1,min=2",
            "burst:for=2m,every=1m",
            "burst:every=0s",
            "trace:",
            "trace:map",
            "trace:map/",
            "trace:/key",
        ] {
            assert!(parse(Measure::Cpu, text).is_err(), "{text}");
        }
        for (text, want) in [
            ("", "no lines"),
            ("0,1\nx,2", "line 2: expected seconds,value"),
            ("a\nb", "line 2: expected seconds,value"),
            ("5,1\n5,2", "line 2: seconds must ascend"),
            ("-1,2", "line 1: expected seconds,value"),
        ] {
            assert_eq!(Trace::parse(Measure::Cpu, text), Err(want.to_owned()), "{text}");
        }
        let wanted = Wanted::TraceIn { config_map: "load".to_owned(), key: "a/b.csv".to_owned() };
        assert_eq!(parse(Measure::Cpu, "trace:load/a/b.csv"), Ok(wanted));
    }
}
