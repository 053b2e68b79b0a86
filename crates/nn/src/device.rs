//! The device an experiment asks for.

use crate::error::NnError;
use burn::tensor::Device;
#[cfg(feature = "cuda")]
use burn::tensor::Tensor;
use std::{fmt, str::FromStr};

/// What `device = "…"` can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// `"cpu"`.
    Cpu,
    /// `"cuda"` or `"cuda:INDEX"`.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = NnError;

    fn from_str(text: &str) -> Result<Self, NnError> {
        let index = match text {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some(0),
            _ => text.strip_prefix("cuda:").and_then(|index| index.parse().ok()),
        };
        index
            .map(Self::Cuda)
            .ok_or_else(|| NnError::Device(format!("device `{text}` is unknown; use \"cpu\", \"cuda\" or \"cuda:INDEX\"")))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// Opens the device after probing that it is there.
///
/// # Errors
/// [`NnError::Device`] when the binary has no CUDA support, the driver cannot be loaded or the index does not exist.
pub fn open_device(choice: DeviceChoice) -> Result<Device, NnError> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::flex()),
        DeviceChoice::Cuda(index) => open_cuda(index),
    }
}

#[cfg(feature = "cuda")]
fn open_cuda(index: usize) -> Result<Device, NnError> {
    // Enumeration asks for the driver library first: without it the list is empty. Creating the device would panic.
    let found = Device::enumerate(burn::tensor::DeviceType::Cuda).len();
    if index >= found {
        return Err(NnError::Device(format!(
            "device `cuda:{index}` is not there: {found} CUDA device(s) found (none are found when the driver's \
             libcuda.so cannot be loaded); choose another index or use `device = \"cpu\"`"
        )));
    }
    let device = Device::cuda(index);
    // A kernel with `exp`, because it needs the toolkit's mathematics: where that is missing, an update would panic later.
    match Tensor::<1>::from_floats([1.0], &device).exp().try_into_data() {
        Ok(_) => Ok(device),
        Err(error) if error.to_string().contains("libdevice") => Err(NnError::Device(format!(
            "device `cuda:{index}` needs `libdevice.10.bc` of the CUDA toolkit; install the toolkit, set CUDA_PATH to a folder \
             that has `nvvm/libdevice/libdevice.10.bc` (docs/guide/cuda.md says where to get it), or use `device = \"cpu\"`"
        ))),
        Err(error) => Err(NnError::Device(format!("device `cuda:{index}` does not answer: {error}"))),
    }
}

#[cfg(not(feature = "cuda"))]
fn open_cuda(index: usize) -> Result<Device, NnError> {
    Err(NnError::Device(format!(
        "device `cuda:{index}` needs a binary with CUDA support; build it with `--features cuda` or use `device = \"cpu\"`"
    )))
}

/// Keeps freed memory in the process; call it once at start-up, before threads are started.
///
/// Every tensor operation allocates its result. By default glibc maps large blocks from the system and returns them when
/// they are freed, so each operation pays for page faults: training a small model takes about half as long again.
/// Does nothing where the allocator is not glibc's.
pub fn tune_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    raise_malloc_thresholds();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn raise_malloc_thresholds() {
    // SAFETY: `mallopt` only sets parameters of the allocator, takes its lock, and accepts these parameters at any time.
    unsafe {
        // Older versions refuse more than half a heap, which is 32 MiB.
        if libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30) == 0 {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        }
        libc::mallopt(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_parsed_and_shown() {
        for (text, shown) in [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1")] {
            assert_eq!(text.parse::<DeviceChoice>().expect(text).to_string(), shown);
        }
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
            let error = text.parse::<DeviceChoice>().expect_err(text);
            assert!(error.to_string().contains("use \"cpu\", \"cuda\" or \"cuda:INDEX\""), "{error}");
        }
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_binary_without_cuda_says_what_to_do() {
        let error = open_device(DeviceChoice::Cuda(1)).expect_err("no CUDA support");
        assert!(error.to_string().contains("--features cuda"), "{error}");
    }
}
