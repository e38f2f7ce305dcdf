//! From burn tensors to slices and back, without copies.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexTensor};
use std::ops::Deref;

/// The values of an f32 tensor on the CPU device, row after row.
#[derive(Debug, Clone)]
pub(crate) struct View(FlexTensor);

impl View {
    /// `None` for a tensor of another device or type, or one that is recorded.
    pub(crate) fn of<const D: usize>(tensor: &Tensor<D>) -> Option<Self> {
        let primitive = tensor.clone().try_into_primitive::<Flex>().ok()?;
        let rows = match primitive.is_contiguous() {
            true => primitive,
            false => primitive.to_contiguous(),
        };
        rows.as_slice::<f32>().is_some().then_some(View(rows))
    }
}

impl Deref for View {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        self.0.as_slice().unwrap_or_default()
    }
}

/// A tensor that takes over the values.
pub(crate) fn tensor<const D: usize>(values: Vec<f32>, dims: [usize; D]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, dims), &Device::flex())
}

/// A tensor's values; copied only when the tensor is shared or cut out of
/// another.
pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor
        .into_data()
        .try_into_vec()
        .unwrap_or_else(|e| unreachable!("an f32 tensor holds f32 values: {e:?}"))
}

/// A vector of `i32` that takes over the values.
pub(crate) fn integer_tensor(values: Vec<i32>) -> Tensor<1, Int> {
    let n = values.len();
    Tensor::from_data(TensorData::new(values, [n]), (&Device::flex(), DType::I32))
}

/// The values of a vector of `i32`; copied only when the tensor is shared.
pub(crate) fn integers(tensor: Tensor<1, Int>) -> Vec<i32> {
    tensor
        .into_data()
        .try_into_vec()
        .unwrap_or_else(|e| unreachable!("an i32 tensor holds i32 values: {e:?}"))
}
