//! One attempt to place one pod: what is tried on what, and what plugins keep meanwhile.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::pod::Pod;

/// The pod and the cluster, unchanged while the attempt lasts, and a typed slot per plugin.
pub struct Cycle<'a> {
    pub cluster: &'a Cluster,
    pub pod: &'a Arc<Pod>,
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

impl<'a> Cycle<'a> {
    pub fn new(cluster: &'a Cluster, pod: &'a Arc<Pod>) -> Cycle<'a> {
        Cycle { cluster, pod, slots: HashMap::new() }
    }

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

/// A copy whose slots can change without the original noticing.
impl Clone for Cycle<'_> {
    fn clone(&self) -> Self {
        let slots = self.slots.iter().map(|(id, slot)| (*id, (**slot).boxed_clone())).collect();
        Cycle { cluster: self.cluster, pod: self.pod, slots }
    }
}
