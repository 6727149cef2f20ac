//! How pods of each QoS class share a node. Spec: crds 5.3 to 5.7.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::crd::schema;
use crate::crd::wire::{empty_as_none, open_enum, wire};

wire! {
    /// Shares of CPU, memory, disk, cache and network by QoS class.
    pub struct ResourceQosStrategy {
        /// Which mechanisms of the kernel are used.
        pub policies: Option<ResourceQosPolicies>,
        /// Pods of class LSR, and of class LSE.
        pub lsr_class: Option<ResourceQos>,
        /// Pods of class LS.
        pub ls_class: Option<ResourceQos>,
        /// Pods of class BE.
        pub be_class: Option<ResourceQos>,
        /// System processes.
        pub system_class: Option<ResourceQos>,
        /// The root cgroup; only its blkioQOS is used.
        pub cgroup_root: Option<ResourceQos>,
    }

    /// Which mechanisms of the kernel are used.
    pub struct ResourceQosPolicies {
        /// `groupIdentity` (default) or `coreSched`.
        pub cpu_policy: Option<CpuPolicy>,
        /// `tc` (default) or `terway-qos`.
        #[serde(rename = "netQOSPolicy")]
        pub net_qos_policy: Option<NetQosPolicy>,
    }

    /// All shares of one QoS class.
    pub struct ResourceQos {
        /// Who runs first.
        #[serde(rename = "cpuQOS")]
        pub cpu_qos: Option<CpuQos>,
        /// Whose memory is protected and reclaimed.
        #[serde(rename = "memoryQOS")]
        pub memory_qos: Option<MemoryQos>,
        /// Shares of block devices.
        #[serde(rename = "blkioQOS")]
        pub blkio_qos: Option<BlkioQos>,
        /// Shares of the last-level cache and of memory bandwidth.
        #[serde(rename = "resctrlQOS")]
        pub resctrl_qos: Option<ResctrlQos>,
        /// Shares of the network.
        #[serde(rename = "networkQOS")]
        pub network_qos: Option<NetworkQos>,
    }

    /// Who runs first.
    pub struct CpuQos {
        pub enable: Option<bool>,
        /// Identity of the group, -1 to 2, when the CPU policy is groupIdentity.
        pub group_identity: Option<i64>,
        /// 1 gives way to everyone else, when the CPU policy is coreSched.
        pub sched_idle: Option<i64>,
        /// Whether idle pods are expelled from the sibling of a core that this class uses.
        pub core_expeller: Option<bool>,
    }

    /// Whose memory is protected and reclaimed.
    pub struct MemoryQos {
        pub enable: Option<bool>,
        /// memory.min in percent of the request.
        #[schemars(range(min = 0))]
        pub min_limit_percent: Option<i64>,
        /// memory.low in percent of the request.
        #[schemars(range(min = 0))]
        pub low_limit_percent: Option<i64>,
        /// Where memory.high lies between request and limit, in percent; 0 is off.
        #[schemars(range(min = 0))]
        pub throttling_percent: Option<i64>,
        /// Use in percent of the limit at which the kernel reclaims in the background; 0 is off.
        #[schemars(range(min = 0, max = 100))]
        pub wmark_ratio: Option<i64>,
        /// How much one background reclaim frees, in thousandths of the limit.
        #[schemars(range(min = 1, max = 1000))]
        pub wmark_scale_permill: Option<i64>,
        /// Adjustment of the global minimum watermark for this class, in percent.
        #[schemars(range(min = -25, max = 50))]
        pub wmark_min_adj: Option<i64>,
        /// Whether the kernel picks victims by priority when memory is short: 0 off, 1 on.
        pub priority_enable: Option<i64>,
        /// 0 (killed first) to 12 (killed last).
        pub priority: Option<i64>,
        /// Whether all processes of a group are killed together: 0 off, 1 on.
        pub oom_kill_group: Option<i64>,
        /// Whether the page cache is limited.
        pub page_cache_enable: Option<bool>,
        /// Page cache in percent of the memory limit.
        #[schemars(range(min = 0, max = 100))]
        pub page_cache_limit_percent: Option<i64>,
        /// Page cache in bytes; wins over the percentage.
        pub page_cache_limit_size: Option<i64>,
        /// Whether the writer waits while page cache over the limit is reclaimed.
        pub page_cache_reclaim_sync: Option<bool>,
    }

    /// Shares of block devices.
    pub struct BlkioQos {
        pub enable: Option<bool>,
        /// One entry for each device or volume.
        pub blocks: Vec<BlockCfg>,
    }

    /// Limits on one block device or volume.
    pub struct BlockCfg {
        /// Name of the device, volume group or volume.
        pub name: String,
        /// `device`, `volumegroup` or `podvolume`.
        #[serde(rename = "type", deserialize_with = "empty_as_none")]
        pub block_type: Option<BlockType>,
        /// The limits.
        pub io_cfg: Option<IoCfg>,
    }

    /// Limits and weights of one block device or volume. 0 is off.
    pub struct IoCfg {
        /// Reads per second.
        #[serde(rename = "readIOPS")]
        #[schemars(range(min = 0))]
        pub read_iops: Option<i64>,
        /// Writes per second.
        #[serde(rename = "writeIOPS")]
        #[schemars(range(min = 0))]
        pub write_iops: Option<i64>,
        /// Bytes read per second.
        #[serde(rename = "readBPS")]
        #[schemars(range(min = 0))]
        pub read_bps: Option<i64>,
        /// Bytes written per second.
        #[serde(rename = "writeBPS")]
        #[schemars(range(min = 0))]
        pub write_bps: Option<i64>,
        /// Weight in percent when the device is contended.
        #[schemars(range(min = 1, max = 100))]
        pub io_weight_percent: Option<i64>,
        /// Read latency to keep, in microseconds (root class).
        pub read_latency: Option<i64>,
        /// Write latency to keep, in microseconds (root class).
        pub write_latency: Option<i64>,
        /// Share of reads that must keep the latency, in percent.
        #[schemars(range(min = 0, max = 100))]
        pub read_latency_percent: Option<i64>,
        /// Share of writes that must keep the latency, in percent.
        #[schemars(range(min = 0, max = 100))]
        pub write_latency_percent: Option<i64>,
        /// Whether the model values below describe the device.
        pub enable_user_model: Option<bool>,
        /// Bytes the device reads per second.
        #[serde(rename = "modelReadBPS")]
        #[schemars(range(min = 1))]
        pub model_read_bps: Option<i64>,
        /// Bytes the device writes per second.
        #[serde(rename = "modelWriteBPS")]
        #[schemars(range(min = 1))]
        pub model_write_bps: Option<i64>,
        /// Sequential reads the device does per second.
        #[serde(rename = "modelReadSeqIOPS")]
        #[schemars(range(min = 1))]
        pub model_read_seq_iops: Option<i64>,
        /// Sequential writes the device does per second.
        #[serde(rename = "modelWriteSeqIOPS")]
        #[schemars(range(min = 1))]
        pub model_write_seq_iops: Option<i64>,
        /// Random reads the device does per second.
        #[serde(rename = "modelReadRandIOPS")]
        #[schemars(range(min = 1))]
        pub model_read_rand_iops: Option<i64>,
        /// Random writes the device does per second.
        #[serde(rename = "modelWriteRandIOPS")]
        #[schemars(range(min = 1))]
        pub model_write_rand_iops: Option<i64>,
    }

    /// Shares of the last-level cache and of memory bandwidth.
    pub struct ResctrlQos {
        pub enable: Option<bool>,
        /// First part of the cache, in percent.
        #[schemars(range(min = 0, max = 100))]
        pub cat_range_start_percent: Option<i64>,
        /// Last part of the cache, in percent.
        #[schemars(range(min = 0, max = 100))]
        pub cat_range_end_percent: Option<i64>,
        /// Memory bandwidth in percent.
        #[schemars(range(min = 0, max = 100))]
        pub mba_percent: Option<i64>,
    }

    /// Shares of the network: an integer is percent of the total, a string is bits per second.
    pub struct NetworkQos {
        pub enable: Option<bool>,
        /// Incoming traffic that is guaranteed.
        #[schemars(schema_with = "schema::int_or_string", extend("x-koord-default" = 0))]
        pub ingress_request: Option<IntOrString>,
        /// Incoming traffic that is the most.
        #[schemars(schema_with = "schema::int_or_string", extend("x-koord-default" = 100))]
        pub ingress_limit: Option<IntOrString>,
        /// Outgoing traffic that is guaranteed.
        #[schemars(schema_with = "schema::int_or_string", extend("x-koord-default" = 0))]
        pub egress_request: Option<IntOrString>,
        /// Outgoing traffic that is the most.
        #[schemars(schema_with = "schema::int_or_string", extend("x-koord-default" = 100))]
        pub egress_limit: Option<IntOrString>,
    }
}

open_enum! {
    /// How the kernel tells CPU classes apart.
    pub enum CpuPolicy {
        GroupIdentity = "groupIdentity",
        CoreSched = "coreSched",
    }

    /// Who shapes the network.
    pub enum NetQosPolicy {
        Tc = "tc",
        TerwayQos = "terway-qos",
    }

    /// What a block entry names.
    pub enum BlockType {
        /// A device; only in cgroupRoot.
        Device = "device",
        VolumeGroup = "volumegroup",
        PodVolume = "podvolume",
    }
}
