//! Scoring on threads of its own, with a deadline per answer.

mod worker;

use super::{Outcome, OwnedInput, RewardFn};
use crate::{Error, Result};
use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use worker::{Job, Worker};

/// Workers that may be stuck in scorers that never return, before the pool
/// refuses to go on.
const MOST_ABANDONED: usize = 64;

/// A fixed number of scoring threads, reused from batch to batch.
///
/// The deadline of an answer starts when a worker takes it up. A worker that
/// misses it is left to itself and replaced, so one hanging scorer costs its
/// own answer and no other.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use verl_core::reward::{Outcome, OwnedInput, RewardFn, ScoringPool, reward_fn};
///
/// let reward: Arc<dyn RewardFn> = Arc::new(reward_fn("length", |input| input.response.len() as f32));
/// let pool = ScoringPool::new(2, Duration::from_secs(1))?;
/// let row = serde_json::Map::new();
/// let outcomes = pool.score_batch(&reward, vec![OwnedInput::new("q", "abc", row)])?;
/// assert!(matches!(&outcomes[0], Outcome::Scored(score) if score.value == 3.0));
/// # Ok::<(), verl_core::Error>(())
/// ```
pub struct ScoringPool {
    timeout: Duration,
    workers: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Worker>,
    abandoned: usize,
}

/// What a batch hears of.
enum Event {
    /// An answer to score.
    Answer(OwnedInput),
    /// No more answers come.
    End,
    /// Whoever hands answers over has failed; no outcome is wanted.
    Cancel,
    /// The outcome of answer number N.
    Done(usize, Outcome),
}

/// A job in a worker's hands.
struct Running {
    worker: Worker,
    index: usize,
    deadline: Instant,
}

impl ScoringPool {
    /// A pool of `workers` threads that give each answer `timeout`.
    ///
    /// # Errors
    /// [`Error::Config`] without a worker or without time.
    pub fn new(workers: usize, timeout: Duration) -> Result<Self> {
        if workers == 0 {
            return Err(Error::config("reward.workers", "must be at least 1"));
        }
        if timeout.is_zero() {
            return Err(Error::config("reward.timeout_s", "must be positive"));
        }
        Ok(ScoringPool {
            timeout,
            workers,
            state: Mutex::new(State::default()),
        })
    }

    /// Scores a batch; outcomes come in the order of the inputs.
    ///
    /// # Errors
    /// [`Error::Aborted`] when too many scorers of earlier answers still hang,
    /// [`Error::Io`] when no thread can be started.
    pub fn score_batch(
        &self,
        reward: &Arc<dyn RewardFn>,
        inputs: Vec<OwnedInput>,
    ) -> Result<Vec<Outcome>> {
        let all = |hand_over: &mut dyn FnMut(OwnedInput)| {
            inputs.into_iter().for_each(hand_over);
            Ok(())
        };
        Ok(self.score_while(reward, all)?.1)
    }

    /// Scores answers while `produce` is still making others: it runs on the
    /// calling thread and hands each answer over as soon as it exists. Returns
    /// what `produce` returned, and the outcomes in the order of handing over.
    ///
    /// # Errors
    /// As [`ScoringPool::score_batch`]; and the error of `produce`, which
    /// leaves what was handed over unscored.
    pub fn score_while<T>(
        &self,
        reward: &Arc<dyn RewardFn>,
        produce: impl FnOnce(&mut dyn FnMut(OwnedInput)) -> Result<T>,
    ) -> Result<(T, Vec<Outcome>)> {
        let (sender, events) = channel();
        thread::scope(|scope| {
            let mut closing = Closing {
                events: sender.clone(),
                last: Event::Cancel,
            };
            let dispatcher = scope.spawn(|| self.dispatch(reward, sender, events));
            // A dispatcher that failed hears nothing any more; its error is below.
            let made = produce(&mut |input| drop(closing.events.send(Event::Answer(input))));
            if made.is_ok() {
                closing.last = Event::End;
            }
            drop(closing);
            let outcomes = dispatcher
                .join()
                .unwrap_or_else(|_| Err(Error::Aborted("the scoring dispatcher panicked".into())));
            Ok((made?, outcomes?))
        })
    }

    /// Gives answers to workers as they come, until there are no more.
    fn dispatch(
        &self,
        reward: &Arc<dyn RewardFn>,
        report: Sender<Event>,
        events: Receiver<Event>,
    ) -> Result<Vec<Outcome>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcomes: Vec<Outcome> = Vec::new();
        let mut waiting: VecDeque<Job> = VecDeque::new();
        let mut running: Vec<Running> = Vec::new();
        let mut open = true;
        while open || !running.is_empty() {
            match next_event(&events, &running) {
                Some(Event::Answer(input)) => {
                    waiting.push_back(Job {
                        reward: reward.clone(),
                        input,
                        index: outcomes.len(),
                        report: report.clone(),
                    });
                    outcomes.push(Outcome::TimedOut);
                }
                Some(Event::End) => open = false,
                Some(Event::Cancel) => return Ok(Vec::new()),
                Some(Event::Done(index, outcome)) => {
                    // An answer that comes after its deadline is not in `running`.
                    if let Some(at) = running.iter().position(|r| r.index == index) {
                        state.idle.push(running.swap_remove(at).worker);
                        outcomes[index] = outcome;
                    }
                }
                None => expire(&mut running, &mut state)?,
            }
            while running.len() < self.workers
                && let Some(job) = waiting.pop_front()
            {
                running.push(Running {
                    index: job.index,
                    worker: assign(&mut state, job)?,
                    deadline: Instant::now() + self.timeout,
                });
            }
        }
        Ok(outcomes)
    }
}

/// Tells the dispatcher that no more answers come, also when a panic unwinds.
struct Closing {
    events: Sender<Event>,
    last: Event,
}

impl Drop for Closing {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut self.last, Event::Cancel);
        let _ = self.events.send(last);
    }
}

/// Waits for something to happen, until the next deadline at most.
fn next_event(events: &Receiver<Event>, running: &[Running]) -> Option<Event> {
    match running.iter().map(|r| r.deadline).min() {
        Some(deadline) => events
            .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            .ok(),
        None => events.recv().ok(),
    }
}

/// Gives up on the jobs whose deadline has passed; their workers end by
/// themselves, if ever, because nobody sends them another job.
fn expire(running: &mut Vec<Running>, state: &mut State) -> Result<()> {
    let (now, before) = (Instant::now(), running.len());
    running.retain(|r| r.deadline > now);
    state.abandoned += before - running.len();
    match state.abandoned > MOST_ABANDONED {
        true => Err(Error::Aborted(format!(
            "{} answers have made the scorer miss its deadline; raise reward.timeout_s, or find out why it hangs",
            state.abandoned
        ))),
        false => Ok(()),
    }
}

fn assign(state: &mut State, job: Job) -> Result<Worker> {
    let worker = match state.idle.pop() {
        Some(worker) => worker,
        None => Worker::start()?,
    };
    match worker.take(job) {
        Ok(()) => Ok(worker),
        // The thread is gone; a new one takes its place.
        Err(job) => {
            let worker = Worker::start()?;
            let _ = worker.take(job);
            Ok(worker)
        }
    }
}

impl fmt::Debug for ScoringPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoringPool")
            .field("workers", &self.workers)
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests;
