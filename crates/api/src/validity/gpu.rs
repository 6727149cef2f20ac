//! What a container may ask of GPUs (gate ValidatePodDeviceResource). Spec: api 3.4 d.

use k8s_openapi::api::core::v1::Pod;

use super::{FieldError, FieldErrors, REQUESTS};
use crate::keys::resource::{GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, HUAWEI_NPU_CORE};
use crate::pod::resource_list;
use crate::quantity::{Quantity, ResourceList};

/// Checks the GPU requests of each container; init containers are not looked at.
pub fn check_gpu(pod: &Pod) -> FieldErrors {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let lists = containers.map(|c| resource_list(c.resources.as_ref().and_then(|r| r.requests.as_ref())));
    FieldErrors(lists.flat_map(|requests| check_container(&requests)).collect())
}

fn check_container(requests: &ResourceList) -> Vec<FieldError> {
    match (requests.get(GPU), requests.get(GPU_SHARED)) {
        (Some(_), Some(_)) => {
            vec![FieldError::forbidden(REQUESTS, "Forbidden declare GPU and GPU share at same time")]
        }
        (Some(gpu), None) => check_whole(*gpu),
        (None, Some(shared)) => check_shared(requests, *shared),
        (None, None) => Vec::new(),
    }
}

fn above_zero(amount: Quantity) -> Option<FieldError> {
    let detail = "the requested GPU must be greater than zero";
    (amount.value() == 0).then(|| FieldError::invalid(REQUESTS, amount, detail))
}

fn check_whole(gpu: Quantity) -> Vec<FieldError> {
    let uneven = gpu.value() > 100 && gpu.value() % 100 != 0;
    let detail = "the requested GPU must be percentage of 100";
    above_zero(gpu).into_iter().chain(uneven.then(|| FieldError::invalid(REQUESTS, gpu, detail))).collect()
}

fn check_shared(requests: &ResourceList, shared: Quantity) -> Vec<FieldError> {
    let amount = |name| requests.get(name).copied().unwrap_or_default();
    let mut errors: Vec<FieldError> = above_zero(shared).into_iter().collect();
    if amount(HUAWEI_NPU_CORE).value() != 0 {
        return errors;
    }
    let (core, ratio) = (amount(GPU_CORE), amount(GPU_MEMORY_RATIO));
    match (amount(GPU_MEMORY).value() != 0, ratio.value() != 0) {
        (false, false) => {
            errors.push(FieldError::forbidden(REQUESTS, "GPU memory and GPU memory ratio all is zero"));
        }
        (true, true) => {
            let detail = "declare GPU memory and GPU memory ratio at same time";
            errors.push(FieldError::forbidden(REQUESTS, detail));
        }
        _ => {}
    }
    for (amount, detail) in [
        (core, "the requested gpuCore must multiple of shared"),
        (ratio, "the requested gpuMemoryRatio must multiple of shared"),
    ] {
        // No remainder by zero: a zero share was refused above.
        if amount.value().checked_rem(shared.value()).is_some_and(|rest| rest != 0) {
            errors.push(FieldError::invalid(REQUESTS, amount, detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::sketch::{Sketch, pod};

    const PATH: &str = "pod.spec.containers[*].resources.requests";

    #[test]
    fn gpu_requests() {
        let one = |text: &str| format!("{PATH}: {text}");
        for (key, requests, want) in [
            (
                "both",
                vec![(GPU, "100"), (GPU_SHARED, "1")],
                one("Forbidden: Forbidden declare GPU and GPU share at same time"),
            ),
            (
                "zero",
                vec![(GPU, "0")],
                one("Invalid value: \"0\": the requested GPU must be greater than zero"),
            ),
            (
                "150",
                vec![(GPU, "150")],
                one("Invalid value: \"150\": the requested GPU must be percentage of 100"),
            ),
            (
                "share 0",
                vec![(GPU_SHARED, "0"), (GPU_MEMORY, "1")],
                one("Invalid value: \"0\": the requested GPU must be greater than zero"),
            ),
            (
                "no memory",
                vec![(GPU_SHARED, "1")],
                one("Forbidden: GPU memory and GPU memory ratio all is zero"),
            ),
            (
                "api#10.118",
                vec![(GPU_SHARED, "2"), (GPU_CORE, "51"), (GPU_MEMORY_RATIO, "75"), (GPU_MEMORY, "1Gi")],
                format!(
                    "[{PATH}: Forbidden: declare GPU memory and GPU memory ratio at same time, \
                     {PATH}: Invalid value: \"51\": the requested gpuCore must multiple of shared, \
                     {PATH}: Invalid value: \"75\": the requested gpuMemoryRatio must multiple of shared]"
                ),
            ),
        ] {
            assert_eq!(check_gpu(&pod().container(&requests, &[])).to_string(), want, "{key}");
        }
    }

    #[test]
    fn accepted() {
        for requests in [
            vec![(GPU, "50")],
            vec![(GPU, "200")],
            vec![(GPU_SHARED, "2"), (GPU_CORE, "50"), (GPU_MEMORY_RATIO, "50")],
            vec![(GPU_SHARED, "1"), (HUAWEI_NPU_CORE, "3")],
            vec![("nvidia.com/gpu", "1")],
        ] {
            assert!(check_gpu(&pod().container(&requests, &[])).is_empty(), "{requests:?}");
        }
    }
}
