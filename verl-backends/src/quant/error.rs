//! What can be wrong with codes, scales and matrices.

/// Why a matrix cannot be quantised, or codes cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// A list that does not fit the shape of the matrix.
    #[error("{what}: expected {expected} values, got {got}")]
    Length {
        /// The list.
        what: &'static str,
        /// The length that the shape asks for.
        expected: usize,
        /// Its length.
        got: usize,
    },

    /// A NaN or an infinity.
    #[error("{what} {index} is {value}; only finite numbers can be used")]
    NotFinite {
        /// Kind of value.
        what: &'static str,
        /// Its place in the list.
        index: usize,
        /// The value.
        value: f32,
    },

    /// A width that fills no whole 32-bit words.
    #[error("{what} is {size}, which is no multiple of 8")]
    NotPacked {
        /// The width.
        what: &'static str,
        /// Its value.
        size: usize,
    },

    /// A group without inputs.
    #[error("a group size of 0 leaves no weight a scale")]
    EmptyGroup,

    /// An input that names a group which has no scale.
    #[error("g_idx puts input {input} into group {group}, but there are {groups} groups")]
    NoSuchGroup {
        /// The input.
        input: usize,
        /// The group it names.
        group: u32,
        /// Number of groups.
        groups: usize,
    },

    /// A GPTQ zero point that different readers take for different numbers.
    #[error(
        "the zero point of group {group}, output {output} is stored as 15: with the 1 that GPTQ takes off it is 16 to some readers and 0 to others"
    )]
    AmbiguousZero {
        /// The group.
        group: usize,
        /// The output.
        output: usize,
    },

    /// A matrix that no memory can hold.
    #[error("a matrix of {rows} x {cols} values fits into no memory")]
    TooLarge {
        /// Rows.
        rows: usize,
        /// Columns.
        cols: usize,
    },
}

impl From<QuantError> for verl_core::Error {
    fn from(error: QuantError) -> Self {
        verl_core::Error::Invalid(error.to_string())
    }
}
