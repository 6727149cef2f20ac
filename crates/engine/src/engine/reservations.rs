//! What becomes of a Reservation that the API tells of. Spec: scheduler-reservation-loadaware A4.1.

use koord_api::crd::reservation::Reservation;

use super::Engine;
use crate::time::Time;

impl Engine {
    /// A Reservation as it is now.
    pub(super) fn reservation_is(&mut self, _now: Time, object: &Reservation) {
        let news = self.world.cluster.set_reservation(object);
        let record = news.new;
        if !record.pod.node.is_empty() && !record.phase.is_terminal() {
            self.world.cluster.confirm(record.pod.clone());
        }
    }

    /// A Reservation was deleted.
    pub(super) fn reservation_is_gone(&mut self, _now: Time, uid: &str) {
        self.world.cluster.remove_reservation(uid);
    }
}
