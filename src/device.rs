//! The device that a configuration asks for.

use verl_backends::burn::tensor::Device;
use verl_core::config::{DeviceConfig, DeviceKind};
use verl_core::{Error, Result};

/// Opens the configured device.
///
/// # Errors
/// [`Error::Config`] when this build was made without support for it.
pub fn device(config: &DeviceConfig) -> Result<Device> {
    let index = config.index;
    match config.kind {
        #[cfg(feature = "flex")]
        DeviceKind::Flex if index == 0 => Ok(Device::flex()),
        #[cfg(feature = "flex")]
        DeviceKind::Flex => Err(Error::config("device.index", "there is one CPU; use 0")),
        #[cfg(feature = "cuda")]
        DeviceKind::Cuda => Ok(Device::cuda(index)),
        #[cfg(feature = "rocm")]
        DeviceKind::Rocm => Ok(Device::rocm(index)),
        #[cfg(feature = "wgpu")]
        DeviceKind::Wgpu => Ok(Device::wgpu(gpu(index))),
        #[cfg(feature = "vulkan")]
        DeviceKind::Vulkan => Ok(Device::vulkan(gpu(index))),
        #[cfg(feature = "metal")]
        DeviceKind::Metal => Ok(Device::metal(gpu(index))),
        #[cfg(feature = "webgpu")]
        DeviceKind::Webgpu => Ok(Device::webgpu(gpu(index))),
        #[allow(unreachable_patterns)]
        other => {
            let feature = format!("{other:?}").to_lowercase();
            let message =
                format!("this build has no support for it; build with `--features {feature}`");
            Err(Error::config("device.kind", message))
        }
    }
}

#[cfg(any(
    feature = "wgpu",
    feature = "vulkan",
    feature = "metal",
    feature = "webgpu"
))]
fn gpu(index: usize) -> verl_backends::burn::tensor::DeviceKind {
    match index {
        0 => verl_backends::burn::tensor::DeviceKind::DefaultDevice,
        n => verl_backends::burn::tensor::DeviceKind::DiscreteGpu(n),
    }
}
