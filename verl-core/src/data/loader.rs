//! The order in which prompts are drawn.

use crate::{Error, Result};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// Draws batches of prompts. Each epoch visits the prompts in a new order that
/// depends on the seed and the epoch alone; what does not fill a batch at its
/// end is left out of that epoch.
#[derive(Debug, Clone)]
pub struct PromptLoader {
    rows: usize,
    batch: usize,
    seed: u64,
    shuffle: bool,
    state: LoaderState,
    order: Vec<usize>,
}

/// A position between two batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// Epochs finished.
    pub epoch: u64,
    /// Batches drawn in this epoch.
    pub batch: u64,
}

impl PromptLoader {
    /// A loader at the start of the first epoch.
    ///
    /// # Errors
    /// [`Error::Config`] when a batch takes more prompts than there are.
    pub fn new(rows: usize, batch: usize, seed: u64, shuffle: bool) -> Result<Self> {
        if batch == 0 || batch > rows {
            let message = format!("a step takes {batch} prompts, there are {rows}");
            return Err(Error::config("training.train_batch_size", message));
        }
        let mut loader = PromptLoader {
            rows,
            batch,
            seed,
            shuffle,
            state: LoaderState::default(),
            order: Vec::new(),
        };
        loader.order = loader.order_of(0);
        Ok(loader)
    }

    /// Numbers of the next batch's prompts.
    pub fn next_batch(&mut self) -> Vec<usize> {
        let per_epoch = (self.rows / self.batch) as u64;
        if self.state.batch >= per_epoch {
            self.state = LoaderState {
                epoch: self.state.epoch + 1,
                batch: 0,
            };
            self.order = self.order_of(self.state.epoch);
        }
        let start = self.state.batch as usize * self.batch;
        self.state.batch += 1;
        self.order[start..start + self.batch].to_vec()
    }

    /// The position.
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// Goes to a position.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it lies beyond its epoch: the data or the batch
    /// size has changed.
    pub fn restore(&mut self, state: &LoaderState) -> Result<()> {
        let per_epoch = (self.rows / self.batch) as u64;
        if state.batch > per_epoch {
            return Err(Error::invalid(format!(
                "the checkpoint stands at batch {} of an epoch that has {per_epoch}; were the data or train_batch_size changed?",
                state.batch
            )));
        }
        self.state = *state;
        self.order = self.order_of(state.epoch);
        Ok(())
    }

    fn order_of(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rows).collect();
        if self.shuffle {
            let seed = crate::rollout::sample_seed(self.seed, epoch, u64::MAX, 0);
            order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_visits_each_prompt_at_most_once_and_the_next_differs() {
        let mut loader = PromptLoader::new(10, 3, 1, true).unwrap();
        let mut epoch = || -> Vec<usize> { (0..3).flat_map(|_| loader.next_batch()).collect() };
        let (first, second) = (epoch(), epoch());
        let mut sorted = first.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 9);
        assert_ne!(first, second);
    }

    #[test]
    fn every_position_can_be_restored_epoch_borders_included() {
        let fresh = || PromptLoader::new(12, 2, 5, true).unwrap();
        let mut whole = fresh();
        let all: Vec<Vec<usize>> = (0..14).map(|_| whole.next_batch()).collect();
        for stop in 0..14 {
            let mut before = fresh();
            (0..stop).for_each(|_| drop(before.next_batch()));
            let mut after = fresh();
            after.restore(&before.state()).unwrap();
            let rest: Vec<Vec<usize>> = (stop..14).map(|_| after.next_batch()).collect();
            assert_eq!(rest, all[stop..]);
        }
    }

    #[test]
    fn positions_of_other_data_are_refused() {
        let mut loader = PromptLoader::new(4, 2, 1, true).unwrap();
        assert!(loader.restore(&LoaderState { epoch: 0, batch: 3 }).is_err());
        assert!(PromptLoader::new(3, 4, 1, true).is_err());
    }
}
