//! VolumeBinding. Spec: scheduler-core 7.3.

use koord_api::duration::GoDuration;

use super::Shape;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// How long a binding may take; 0 does not wait.
    pub bind_timeout: GoDuration,
    /// Scores nodes by storage use; only with the gate StorageCapacityScoring.
    pub shape: Option<Shape>,
}

impl Default for VolumeBindingArgs {
    fn default() -> VolumeBindingArgs {
        VolumeBindingArgs { bind_timeout: GoDuration::from_seconds(600), shape: None }
    }
}
