//! What a container is told about the GPUs its pod was given. Spec: koordlet-enforce 15.6.

use std::path::Path;

use koord_api::annotation::device::DeviceAllocation;
use koord_api::crd::device::DeviceType;
use koord_api::keys::resource::{GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO};

use crate::decide::snapshot::{Pod, whole};

/// The value of the isolation provider label that we know.
const HAMI_CORE: &str = "HAMi-core";
/// Where HAMi-core keeps its locks.
const LOCK_DIR: &str = "/tmp/vgpulock";

/// How HAMi-core is installed on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hami {
    /// Its library, such as `/usr/local/vgpu/libvgpu.so`.
    pub library: String,
    /// Whether containers share their use with a monitor.
    pub is_monitored: bool,
}

/// What a container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Injection {
    pub env: Vec<(&'static str, String)>,
    /// Folder or file of the host, and where the container sees it.
    pub mounts: Vec<(String, String)>,
}

/// None when the pod has no GPU.
pub fn inject(pod: &Pod, container: &str, hami: &Hami) -> Result<Option<Injection>, String> {
    let devices = pod.devices.as_ref().map_err(|error| error.reason())?;
    let gpus = devices.as_ref().and_then(|devices| devices.0.get(&DeviceType::Gpu));
    let Some(gpus) = gpus.filter(|gpus| !gpus.is_empty()) else { return Ok(None) };
    let minors: Vec<String> = gpus.iter().map(|gpu| gpu.minor.to_string()).collect();
    let mut injection =
        Injection { env: vec![("NVIDIA_VISIBLE_DEVICES", minors.join(","))], mounts: Vec::new() };
    if let (Some(HAMI_CORE), Some(first)) = (pod.gpu_isolation.as_deref(), gpus.first()) {
        isolate(&mut injection, first, pod, container, hami)?;
    }
    Ok(Some(injection))
}

/// A part of a GPU is kept apart by a library that is loaded into every process.
fn isolate(
    injection: &mut Injection,
    gpu: &DeviceAllocation,
    pod: &Pod,
    container: &str,
    hami: &Hami,
) -> Result<(), String> {
    let missing = |name: &str| format!("device {} has no {name}", gpu.minor);
    let ratio = whole(&gpu.resources, GPU_MEMORY_RATIO).ok_or_else(|| missing(GPU_MEMORY_RATIO))?;
    if ratio >= 100 {
        return Ok(());
    }
    let memory = whole(&gpu.resources, GPU_MEMORY).ok_or_else(|| missing(GPU_MEMORY))?;
    injection.env.push(("CUDA_DEVICE_MEMORY_LIMIT", memory.to_string()));
    if let Some(cores) = whole(&gpu.resources, GPU_CORE) {
        injection.env.push(("CUDA_DEVICE_SM_LIMIT", cores.to_string()));
    }
    injection.env.push(("LD_PRELOAD", hami.library.clone()));
    injection.mounts.push((hami.library.clone(), hami.library.clone()));
    injection.mounts.push((LOCK_DIR.to_owned(), LOCK_DIR.to_owned()));
    if hami.is_monitored {
        let dir = Path::new(&hami.library).parent().map(|dir| dir.display().to_string()).unwrap_or_default();
        let own = format!("{}_{container}", pod.id.uid);
        injection.env.push(("CUDA_DEVICE_MEMORY_SHARED_CACHE", format!("{dir}/{own}.cache")));
        injection.mounts.push((format!("{dir}/containers/{own}"), dir));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use koord_api::annotation::Annotation;
    use koord_api::annotation::device::DeviceAllocations;

    use super::*;
    use crate::decide::sketch::{PodSketch, pod};

    fn hami(is_monitored: bool) -> Hami {
        Hami { library: "/usr/local/vgpu/libvgpu.so".to_string(), is_monitored }
    }

    fn given(text: &str) -> PodSketch {
        pod("p").annotated(DeviceAllocations::KEY, text)
    }

    #[test]
    fn whole_gpus() {
        let two = given(r#"{"gpu":[{"minor":1},{"minor":3}]}"#).read();
        let got = inject(&two, "main", &hami(false)).unwrap().unwrap();
        assert_eq!(got.env, [("NVIDIA_VISIBLE_DEVICES", "1,3".to_string())], "koordlet-enforce#18.100");
        assert_eq!(inject(&pod("p").read(), "main", &hami(false)), Ok(None));
        assert!(inject(&given("{").read(), "main", &hami(false)).is_err());
    }

    #[test]
    fn parts_of_gpus() {
        let part = |ratio: &str| {
            let resources = format!(
                r#"{{"koordinator.sh/gpu-memory-ratio":"{ratio}","koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-core":"30"}}"#
            );
            let text = format!(r#"{{"gpu":[{{"minor":0,"resources":{resources}}}]}}"#);
            given(&text).label("koordinator.sh/gpu-isolation-provider", "HAMi-core").read()
        };
        let got = inject(&part("50"), "main", &hami(false)).unwrap().unwrap();
        let want = [
            ("NVIDIA_VISIBLE_DEVICES", "0"),
            ("CUDA_DEVICE_MEMORY_LIMIT", "8589934592"),
            ("CUDA_DEVICE_SM_LIMIT", "30"),
            ("LD_PRELOAD", "/usr/local/vgpu/libvgpu.so"),
        ]
        .map(|(name, value)| (name, value.to_string()));
        let same = |path: &str| (path.to_string(), path.to_string());
        let mounts = [same("/usr/local/vgpu/libvgpu.so"), same("/tmp/vgpulock")];
        assert_eq!(
            (got.env.as_slice(), got.mounts.as_slice()),
            (want.as_slice(), &mounts[..]),
            "koordlet-enforce#18.217"
        );
        let full = inject(&part("100"), "main", &hami(false)).unwrap().unwrap();
        assert_eq!((full.env.len(), full.mounts.len()), (1, 0), "koordlet-enforce#18.217");
        let watched = inject(&part("50"), "main", &hami(true)).unwrap().unwrap();
        let cache = ("CUDA_DEVICE_MEMORY_SHARED_CACHE", "/usr/local/vgpu/p_main.cache".to_string());
        assert_eq!(watched.env.last(), Some(&cache));
        assert_eq!(watched.mounts.len(), 3);
    }
}
