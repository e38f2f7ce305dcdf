//! Asking a running trainer to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that ends a run cleanly: the trainer finishes the step in hand,
/// saves a checkpoint and returns. Set it from a signal handler or another
/// thread.
///
/// # Example
/// ```
/// use verl_core::trainer::StopHandle;
/// let stop = StopHandle::default();
/// let handler = stop.clone();
/// // ctrlc::set_handler(move || handler.stop())
/// handler.stop();
/// assert!(stop.is_stopped());
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// Asks for the stop.
    pub fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether a stop was asked for.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
