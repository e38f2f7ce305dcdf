//! One scoring thread.

use super::Event;
use crate::reward::{Outcome, OwnedInput, RewardError, RewardFn, Score};
use crate::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SendError, Sender, channel};
use std::thread;

/// A thread that waits for jobs, and ends when nobody can send any.
pub(super) struct Worker {
    jobs: Sender<Job>,
}

/// One answer to score, and where to report.
pub(super) struct Job {
    pub(super) reward: Arc<dyn RewardFn>,
    pub(super) input: OwnedInput,
    pub(super) index: usize,
    pub(super) report: Sender<Event>,
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start() -> Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let run = move || {
            for job in inbox {
                let outcome = score(&*job.reward, &job.input);
                // The batch may have given up on this answer.
                let _ = job.report.send(Event::Done(job.index, outcome));
            }
        };
        thread::Builder::new()
            .name("reward".into())
            .spawn(run)
            .map_err(Error::io("scoring thread"))?;
        Ok(Worker { jobs })
    }

    /// Hands a job over; it comes back when the thread is gone.
    pub(super) fn take(&self, job: Job) -> std::result::Result<(), Job> {
        self.jobs.send(job).map_err(|SendError(job)| job)
    }
}

fn score(reward: &dyn RewardFn, input: &OwnedInput) -> Outcome {
    match catch_unwind(AssertUnwindSafe(|| reward.score(&input.as_input()))) {
        Ok(Ok(score)) => match unusable(&score) {
            None => Outcome::Scored(score),
            Some(fault) => Outcome::Failed(format!("{}: {fault}", reward.name())),
        },
        Ok(Err(RewardError::Failed(message))) => Outcome::Failed(message),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(panic) => Outcome::Panicked(panic_text(&*panic)),
    }
}

/// What is not finite about a score.
fn unusable(score: &Score) -> Option<String> {
    if !score.value.is_finite() {
        return Some(format!("the score is {}", score.value));
    }
    let (name, value) = score.parts.iter().find(|(_, v)| !v.is_finite())?;
    Some(format!("the sub-score `{name}` is {value}"))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".into())
}
