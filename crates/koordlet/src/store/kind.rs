//! What is measured: kinds of series with their properties, and the keys that name one series. Spec: koordlet-observe 4.1.

use std::fmt;
use std::sync::Arc;

/// Declares an enum whose variants have the texts that queries and files use.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            pub fn parse(text: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|known| known.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named! {
    /// A property that tells series of one kind apart.
    Property {
        PodUid = "pod_uid",
        ContainerId = "container_id",
        HostAppName = "host_app_name",
        NumaNodeId = "numa_node_id",
        GpuMinor = "gpu_minor",
        GpuDeviceUuid = "gpu_device_uuid",
        BeResource = "be_resource",
        BeAllocation = "be_allocation",
        CpiResource = "cpi_resource",
        PsiResource = "psi_resource",
        PsiPrecision = "psi_precision",
        PsiDegree = "psi_degree",
        Qos = "qos",
        CacheId = "cache_id",
        ResctrlMbType = "resctrl_mb_type",
    }
}

named! {
    /// What a series measures. CPU in cores and memory in bytes, but for best-effort CPU, which is in milli-cores.
    Kind {
        NodeCpuUsage = "node_cpu_usage",
        NodeMemoryUsage = "node_memory_usage",
        NodeMemoryUsageWithPageCache = "node_memory_usage_with_page_cache",
        NodeMemoryWithHotPageUsage = "node_memory_with_hot_page_usage",
        NodeMemoryColdPageSize = "node_memory_cold_page_size",
        NodeGpuCoreUsage = "node_gpu_core_usage",
        NodeGpuMemoryUsage = "node_gpu_memory_usage",
        NodeGpuMemoryTotal = "node_gpu_memory_total",
        NodeNumaCpuUsage = "node_numa_cpu_usage",
        NodeNumaMemoryUsage = "node_numa_memory_usage",
        SysCpuUsage = "sys_cpu_usage",
        SysMemoryUsage = "sys_memory_usage",
        SysNumaCpuUsage = "sys_numa_cpu_usage",
        SysNumaMemoryUsage = "sys_numa_memory_usage",
        NodeBe = "node_be",
        PodCpuUsage = "pod_cpu_usage",
        PodMemoryUsage = "pod_memory_usage",
        PodMemoryUsageWithPageCache = "pod_memory_usage_with_page_cache",
        PodCpuThrottled = "pod_cpu_throttled",
        PodMemoryWithHotPageUsage = "pod_memory_with_hot_page_usage",
        PodMemoryColdPageSize = "pod_memory_cold_page_size",
        ContainerCpuUsage = "container_cpu_usage",
        ContainerMemoryUsage = "container_memory_usage",
        ContainerMemoryUsageWithPageCache = "container_memory_usage_with_page_cache",
        ContainerCpuThrottled = "container_cpu_throttled",
        ContainerMemoryWithHotPageUsage = "container_memory_with_hot_page_usage",
        ContainerMemoryColdPageSize = "container_memory_cold_page_size",
        PodGpuCoreUsage = "pod_gpu_core_usage",
        PodGpuMemoryUsage = "pod_gpu_memory_usage",
        ContainerGpuCoreUsage = "container_gpu_core_usage",
        ContainerGpuMemoryUsage = "container_gpu_memory_usage",
        HostApplicationCpuUsage = "host_application_cpu_usage",
        HostApplicationMemoryUsage = "host_application_memory_usage",
        HostApplicationMemoryUsageWithPageCache = "host_application_memory_usage_with_page_cache",
        HostApplicationMemoryWithHotPageUsage = "host_application_memory_with_hot_page_usage",
        HostApplicationMemoryColdPageSize = "host_application_memory_cold_page_size",
        ContainerCpi = "container_cpi",
        PodPsi = "pod_psi",
        ContainerPsi = "container_psi",
        PodPsiCpuFullSupported = "pod_psi_cpu_full_supported",
        ContainerPsiCpuFullSupported = "container_psi_cpu_full_supported",
        ResctrlResourceLlc = "resctrl_resource_llc",
        ResctrlResourceMb = "resctrl_resource_mb",
    }
}

impl Kind {
    /// The properties that every series of the kind has, in the order their values stand in a key.
    pub fn properties(self) -> &'static [Property] {
        use Property::*;
        match self {
            Kind::NodeCpuUsage
            | Kind::NodeMemoryUsage
            | Kind::NodeMemoryUsageWithPageCache
            | Kind::NodeMemoryWithHotPageUsage
            | Kind::NodeMemoryColdPageSize
            | Kind::SysCpuUsage
            | Kind::SysMemoryUsage => &[],
            Kind::NodeGpuCoreUsage | Kind::NodeGpuMemoryUsage | Kind::NodeGpuMemoryTotal => {
                &[GpuMinor, GpuDeviceUuid]
            }
            Kind::NodeNumaCpuUsage
            | Kind::NodeNumaMemoryUsage
            | Kind::SysNumaCpuUsage
            | Kind::SysNumaMemoryUsage => &[NumaNodeId],
            Kind::NodeBe => &[BeResource, BeAllocation],
            Kind::PodCpuUsage
            | Kind::PodMemoryUsage
            | Kind::PodMemoryUsageWithPageCache
            | Kind::PodCpuThrottled
            | Kind::PodMemoryWithHotPageUsage
            | Kind::PodMemoryColdPageSize
            | Kind::PodPsiCpuFullSupported => &[PodUid],
            Kind::ContainerCpuUsage
            | Kind::ContainerMemoryUsage
            | Kind::ContainerMemoryUsageWithPageCache
            | Kind::ContainerCpuThrottled
            | Kind::ContainerMemoryWithHotPageUsage
            | Kind::ContainerMemoryColdPageSize => &[ContainerId],
            Kind::PodGpuCoreUsage | Kind::PodGpuMemoryUsage => &[PodUid, GpuMinor, GpuDeviceUuid],
            Kind::ContainerGpuCoreUsage | Kind::ContainerGpuMemoryUsage => {
                &[ContainerId, GpuMinor, GpuDeviceUuid]
            }
            Kind::HostApplicationCpuUsage
            | Kind::HostApplicationMemoryUsage
            | Kind::HostApplicationMemoryUsageWithPageCache
            | Kind::HostApplicationMemoryWithHotPageUsage
            | Kind::HostApplicationMemoryColdPageSize => &[HostAppName],
            Kind::ContainerCpi => &[PodUid, ContainerId, CpiResource],
            Kind::PodPsi => &[PodUid, PsiResource, PsiPrecision, PsiDegree],
            Kind::ContainerPsi => &[PodUid, ContainerId, PsiResource, PsiPrecision, PsiDegree],
            Kind::ContainerPsiCpuFullSupported => &[PodUid, ContainerId],
            Kind::ResctrlResourceLlc => &[Qos, CacheId],
            Kind::ResctrlResourceMb => &[Qos, CacheId, ResctrlMbType],
        }
    }

    /// Whether it is one of many series of a pod's containers, the first to go when memory is short.
    pub fn is_of_containers(self) -> bool {
        self.properties().contains(&Property::ContainerId)
    }

    /// The one series of the kind that has these properties; all are needed.
    pub fn key(self, properties: &[(Property, &str)]) -> Result<Key, KeyError> {
        let selector = self.select(properties)?;
        let values: Option<Box<[Arc<str>]>> = selector.values.into_iter().collect();
        values.map(|values| Key { kind: self, values }).ok_or(KeyError::Incomplete { kind: self })
    }

    /// The one series of the kind, by the values of its properties in their order.
    ///
    /// # Panics
    /// When there are more or fewer values than the kind has properties: that is a fault of the program.
    pub fn of<const N: usize>(self, values: [&Arc<str>; N]) -> Key {
        assert_eq!(
            values.len(),
            self.properties().len(),
            "{self} has the properties {:?}",
            self.properties()
        );
        Key { kind: self, values: values.into_iter().cloned().collect() }
    }

    /// All series of the kind that have these properties.
    pub fn select(self, properties: &[(Property, &str)]) -> Result<Selector, KeyError> {
        let mut values: Vec<Option<Arc<str>>> = vec![None; self.properties().len()];
        for (property, value) in properties {
            let at = self.properties().iter().position(|known| known == property);
            let at = at.ok_or(KeyError::Unregistered { property: *property, kind: self })?;
            values[at] = Some((*value).into());
        }
        Ok(Selector { kind: self, values: values.into() })
    }
}

/// Names one series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub(super) kind: Kind,
    /// One for each of the kind's properties.
    pub(super) values: Box<[Arc<str>]>,
}

impl Key {
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// In the order of the kind's properties.
    pub fn values(&self) -> &[Arc<str>] {
        &self.values
    }
}

/// Names the series of a kind that share some properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub(super) kind: Kind,
    values: Box<[Option<Arc<str>>]>,
}

impl Selector {
    pub(super) fn matches(&self, key: &Key) -> bool {
        let wanted = self.values.iter().zip(&key.values);
        key.kind == self.kind
            && wanted.into_iter().all(|(wanted, value)| wanted.as_ref().is_none_or(|w| w == value))
    }

    /// The key, when only one series can match.
    pub(super) fn key(&self) -> Option<Key> {
        let values: Option<Box<[Arc<str>]>> = self.values.iter().cloned().collect();
        values.map(|values| Key { kind: self.kind, values })
    }
}

impl From<Key> for Selector {
    fn from(key: Key) -> Selector {
        Selector { kind: key.kind, values: key.values.into_iter().map(Some).collect() }
    }
}

/// Why properties do not name a series. Upstream's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("property {property} is not registered in metric {kind}")]
    Unregistered { property: Property, kind: Kind },
    #[error("property is not fulled set, metric {kind} has {:?}", .kind.properties())]
    Incomplete { kind: Kind },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_need_every_property_and_no_other() {
        // koordlet-observe#13.1.A15
        let fault = Kind::PodCpuUsage.key(&[]).unwrap_err();
        assert_eq!(fault, KeyError::Incomplete { kind: Kind::PodCpuUsage });
        assert!(fault.to_string().starts_with("property is not fulled set, "), "{fault}");
        let fault = Kind::PodCpuUsage.key(&[(Property::PodUid, "u"), (Property::Qos, "LS")]).unwrap_err();
        assert_eq!(fault.to_string(), "property qos is not registered in metric pod_cpu_usage");
        let key = Kind::PodCpuUsage.key(&[(Property::PodUid, "u")]).unwrap();
        assert_eq!(key, Kind::PodCpuUsage.of([&"u".into()]));
        assert!(Kind::PodCpuUsage.select(&[]).unwrap().matches(&key));
        assert!(Kind::PodCpuUsage.select(&[(Property::Qos, "LS")]).is_err());
    }

    #[test]
    fn names_are_unique_and_found_again() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(*kind));
        }
        for property in Property::ALL {
            assert_eq!(Property::parse(property.as_str()), Some(*property));
        }
        assert!(Kind::ContainerPsi.is_of_containers() && !Kind::PodPsi.is_of_containers());
    }
}
