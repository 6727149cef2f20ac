//! Reservations as gauges, made anew whenever somebody looks. Spec: scheduler-reservation-loadaware A16.

use std::fmt;

use koord_api::quantity::Quantity;
use koord_engine::engine::ReservationGauge;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// Phases that have a row each; all but the current one are 0.
const PHASES: [&str; 5] = ["Pending", "Available", "Waiting", "Succeeded", "Failed"];

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    reservations: &[ReservationGauge],
) -> Result<(), fmt::Error> {
    let help = "The current status phase of reservation";
    let name = "scheduler_reservation_status_phase";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for reservation in reservations {
        for phase in PHASES {
            let labels = [("name", reservation.name.as_str()), ("phase", phase)];
            let value = ConstGauge::new(i64::from(reservation.phase == phase));
            value.encode(metric.encode_family(&labels)?)?;
        }
    }
    let help =
        "Resource metrics for a reservation, including allocatable, allocated, and utilization with unit";
    let name = "scheduler_reservation_resource";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    reservations.iter().try_for_each(|reservation| amounts(&mut metric, reservation))
}

fn amounts(metric: &mut MetricEncoder<'_>, reservation: &ReservationGauge) -> Result<(), fmt::Error> {
    for (resource, allocatable) in &reservation.allocatable {
        let allocated = reservation.allocated.get(resource).copied().unwrap_or_default();
        let unit = Unit::of(resource);
        let (there, used) = (unit.value(*allocatable), unit.value(allocated));
        let ratio = if there > 0.0 { used / there } else { 0.0 };
        let rows = [("allocatable", unit.name(), there), ("allocated", unit.name(), used)];
        for (kind, unit, value) in rows.into_iter().chain([("utilization", "ratio", ratio)]) {
            let name = reservation.name.as_str();
            let labels = [("type", kind), ("name", name), ("resource", resource.as_str()), ("unit", unit)];
            ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// What amounts are shown in.
#[derive(Clone, Copy)]
enum Unit {
    Core,
    GiB,
    Raw,
}

impl Unit {
    fn of(resource: &str) -> Unit {
        match resource {
            "cpu" => Unit::Core,
            "memory" => Unit::GiB,
            _ => Unit::Raw,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Core => "core",
            Unit::GiB => "GiB",
            Unit::Raw => "raw",
        }
    }

    fn value(self, amount: Quantity) -> f64 {
        match self {
            Unit::Core => float(amount.milli_value()) / 1e3,
            Unit::GiB => float(amount.value()) / f64::from(1 << 30),
            Unit::Raw => float(amount.value()),
        }
    }
}

/// As exactly as a metric can say it: the upper half and the lower half, both exact.
fn float(amount: i64) -> f64 {
    let high = i32::try_from(amount >> 32).unwrap_or(if amount < 0 { i32::MIN } else { i32::MAX });
    let low = u32::try_from(amount & 0xffff_ffff).unwrap_or(u32::MAX);
    f64::from(high) * 4_294_967_296.0 + f64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_stay_exact() {
        for (amount, want) in [
            (0, 0.0),
            (1, 1.0),
            (-1, -1.0),
            (1 << 40, 1_099_511_627_776.0),
            (-(1 << 33) - 5, -8_589_934_597.0),
        ] {
            assert_eq!(float(amount).to_bits(), f64::to_bits(want), "{amount}");
        }
    }
}
