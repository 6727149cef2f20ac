//! CPUs, cores, sockets and NUMA nodes of a machine.
