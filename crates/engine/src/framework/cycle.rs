//! One attempt to place one pod: what is tried on what, and what plugins keep meanwhile.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::pod::Pod;

/// The pod and the cluster, unchanged while the search lasts, and a typed slot per plugin.
pub struct Cycle<'a> {
    pub cluster: &'a Cluster,
    pub pod: &'a Arc<Pod>,
    pub slots: Slots,
}

/// What plugins keep from one point of an attempt to the next, by type. Outlives the search: Reserve, Permit and
/// PreBind see it too.
#[derive(Default)]
pub struct Slots {
    slots: HashMap<TypeId, Box<dyn Slot>>,
}

/// What a plugin keeps in a cycle. Simulations work on copies.
pub trait Slot: Any + Send + Sync {
    fn boxed_clone(&self) -> Box<dyn Slot>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any + Clone + Send + Sync> Slot for T {
    fn boxed_clone(&self) -> Box<dyn Slot> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Slots {
    pub fn set<T: Any + Clone + Send + Sync>(&mut self, value: T) {
        self.slots.insert(TypeId::of::<T>(), Box::new(value));
    }

    pub fn get<T: Any>(&self) -> Option<&T> {
        self.slots.get(&TypeId::of::<T>()).and_then(|slot| (**slot).as_any().downcast_ref())
    }

    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.slots.get_mut(&TypeId::of::<T>()).and_then(|slot| (**slot).as_any_mut().downcast_mut())
    }
}

/// A copy that can change without the original noticing.
impl Clone for Slots {
    fn clone(&self) -> Self {
        Slots { slots: self.slots.iter().map(|(id, slot)| (*id, (**slot).boxed_clone())).collect() }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slots({})", self.slots.len())
    }
}

impl<'a> Cycle<'a> {
    pub fn new(cluster: &'a Cluster, pod: &'a Arc<Pod>) -> Cycle<'a> {
        Cycle { cluster, pod, slots: Slots::default() }
    }

    pub fn set<T: Any + Clone + Send + Sync>(&mut self, value: T) {
        self.slots.set(value);
    }

    pub fn get<T: Any>(&self) -> Option<&T> {
        self.slots.get()
    }

    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.slots.get_mut()
    }
}

/// A copy whose slots can change without the original noticing.
impl Clone for Cycle<'_> {
    fn clone(&self) -> Self {
        Cycle { cluster: self.cluster, pod: self.pod, slots: self.slots.clone() }
    }
}
