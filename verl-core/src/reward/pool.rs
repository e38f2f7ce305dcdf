//! Scoring on threads of its own, with a deadline per answer.

use super::{OwnedInput, RewardError, RewardFn, Score};
use crate::{Error, Result};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Workers that may be stuck in scorers that never return, before the pool
/// refuses to go on.
const MOST_ABANDONED: usize = 64;

/// What became of an answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It has a score.
    Scored(Score),
    /// The scorer returned an error.
    Failed(String),
    /// The scorer missed the deadline.
    TimedOut,
    /// The scorer panicked.
    Panicked(String),
}

impl Outcome {
    /// The score's value, or a substitute where there is none.
    pub fn value_or(&self, substitute: f32) -> f32 {
        match self {
            Outcome::Scored(score) => score.value,
            _ => substitute,
        }
    }

    /// Why there is no score; `None` when there is one.
    pub fn failure(&self) -> Option<String> {
        match self {
            Outcome::Scored(_) => None,
            Outcome::Failed(message) => Some(message.clone()),
            Outcome::TimedOut => Some("the scorer missed its deadline".into()),
            Outcome::Panicked(message) => Some(format!("the scorer panicked: {message}")),
        }
    }
}

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

/// A thread that waits for jobs.
struct Worker {
    jobs: Sender<Job>,
}

struct Job {
    reward: Arc<dyn RewardFn>,
    input: OwnedInput,
    index: usize,
    serial: u64,
    done: Sender<Done>,
}

struct Done {
    index: usize,
    serial: u64,
    outcome: Outcome,
}

/// A job in a worker's hands.
struct Running {
    worker: Worker,
    index: usize,
    serial: u64,
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, finished) = channel();
        let mut outcomes: Vec<Option<Outcome>> = vec![None; inputs.len()];
        let mut waiting = inputs.into_iter().enumerate();
        let mut running: Vec<Running> = Vec::new();
        let mut serial = 0;
        loop {
            while running.len() < self.workers {
                let Some((index, input)) = waiting.next() else {
                    break;
                };
                serial += 1;
                let job = Job {
                    reward: reward.clone(),
                    input,
                    index,
                    serial,
                    done: done.clone(),
                };
                let worker = assign(&mut state, job)?;
                running.push(Running {
                    worker,
                    index,
                    serial,
                    deadline: Instant::now() + self.timeout,
                });
            }
            if running.is_empty() {
                break;
            }
            match next_done(&finished, &running) {
                Some(done) => {
                    // An answer that comes after its deadline is not in `running`.
                    if let Some(at) = running.iter().position(|r| r.serial == done.serial) {
                        state.idle.push(running.swap_remove(at).worker);
                        outcomes[done.index] = Some(done.outcome);
                    }
                }
                None => expire(&mut running, &mut outcomes, &mut state)?,
            }
        }
        Ok(outcomes
            .into_iter()
            .map(|o| o.unwrap_or(Outcome::TimedOut))
            .collect())
    }
}

/// Waits for a finished job, until the next deadline at most.
fn next_done(finished: &Receiver<Done>, running: &[Running]) -> Option<Done> {
    let deadline = running.iter().map(|r| r.deadline).min()?;
    finished
        .recv_timeout(deadline.saturating_duration_since(Instant::now()))
        .ok()
}

/// Gives up on the jobs whose deadline has passed; their workers end by
/// themselves, if ever, because nobody sends them another job.
fn expire(
    running: &mut Vec<Running>,
    outcomes: &mut [Option<Outcome>],
    state: &mut State,
) -> Result<()> {
    let now = Instant::now();
    running.retain(|r| {
        let late = r.deadline <= now;
        if late {
            outcomes[r.index] = Some(Outcome::TimedOut);
            state.abandoned += 1;
        }
        !late
    });
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
        None => start()?,
    };
    match worker.jobs.send(job) {
        Ok(()) => Ok(worker),
        // The thread is gone; a new one takes its place.
        Err(returned) => {
            let worker = start()?;
            let _ = worker.jobs.send(returned.0);
            Ok(worker)
        }
    }
}

fn start() -> Result<Worker> {
    let (jobs, inbox) = channel::<Job>();
    let run = move || {
        for job in inbox {
            let outcome = score(&*job.reward, &job.input);
            // The batch may have given up on this answer.
            let _ = job.done.send(Done {
                index: job.index,
                serial: job.serial,
                outcome,
            });
        }
    };
    thread::Builder::new()
        .name("reward".into())
        .spawn(run)
        .map_err(Error::io("scoring thread"))?;
    Ok(Worker { jobs })
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

impl fmt::Debug for ScoringPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScoringPool")
            .field("workers", &self.workers)
            .field("timeout", &self.timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reward::{ScoringStats, reward_fn};

    fn inputs(responses: &[&str]) -> Vec<OwnedInput> {
        responses
            .iter()
            .map(|r| OwnedInput::new("q", *r, serde_json::Map::new()))
            .collect()
    }

    fn scorer() -> Arc<dyn RewardFn> {
        Arc::new(reward_fn("test", |input| match input.response {
            "hang" => loop {
                thread::sleep(Duration::from_secs(60));
            },
            "panic" => panic!("no such answer"),
            "fail" => Err("service down"),
            "nan" => Ok(f32::NAN),
            other => Ok(other.len() as f32),
        }))
    }

    #[test]
    fn one_hanging_answer_costs_one_deadline_step_after_step() {
        let pool = ScoringPool::new(2, Duration::from_millis(200)).unwrap();
        for _ in 0..5 {
            let start = Instant::now();
            let outcomes = pool
                .score_batch(
                    &scorer(),
                    inputs(&["a", "hang", "aa", "b", "bb", "c", "cc", "ccc"]),
                )
                .unwrap();
            assert!(start.elapsed() < Duration::from_millis(1500));
            assert_eq!(outcomes[1], Outcome::TimedOut);
            assert_eq!(outcomes[7], Outcome::Scored(Score::new(3.0)));
            assert_eq!(ScoringStats::of(&outcomes).timed_out, 1);
            assert_eq!(
                pool.state.lock().unwrap().idle.len(),
                1,
                "the other worker is free again"
            );
        }
    }

    #[test]
    fn failures_panics_and_bad_scores_are_counted_not_zero() {
        let pool = ScoringPool::new(2, Duration::from_secs(5)).unwrap();
        let outcomes = pool
            .score_batch(&scorer(), inputs(&["fail", "panic", "nan", "ok"]))
            .unwrap();
        assert_eq!(outcomes[0], Outcome::Failed("service down".into()));
        assert_eq!(outcomes[1], Outcome::Panicked("no such answer".into()));
        assert!(matches!(&outcomes[2], Outcome::Failed(m) if m.contains("NaN")));
        let stats = ScoringStats::of(&outcomes);
        assert_eq!((stats.scored, stats.unscored()), (1, 3));
        assert!(
            stats
                .check(0.5, &outcomes)
                .unwrap_err()
                .to_string()
                .contains("service down")
        );
    }

    #[test]
    fn order_is_kept_and_threads_are_reused() {
        let pool = ScoringPool::new(3, Duration::from_secs(5)).unwrap();
        let texts: Vec<String> = (0..100).map(|i| "x".repeat(i % 7)).collect();
        let refs: Vec<&str> = texts.iter().map(String::as_str).collect();
        for _ in 0..3 {
            let outcomes = pool.score_batch(&scorer(), inputs(&refs)).unwrap();
            for (i, outcome) in outcomes.iter().enumerate() {
                assert_eq!(*outcome, Outcome::Scored(Score::new((i % 7) as f32)));
            }
        }
        assert!(pool.state.lock().unwrap().idle.len() <= 3);
    }
}
