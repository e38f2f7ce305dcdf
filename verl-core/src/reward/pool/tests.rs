use super::*;
use crate::reward::{Score, ScoringStats, reward_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};

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

#[test]
fn answers_are_scored_while_others_are_still_made() {
    let pool = ScoringPool::new(1, Duration::from_secs(5)).unwrap();
    let (seen, first) = channel();
    let reward: Arc<dyn RewardFn> = Arc::new(reward_fn("tell", move |input| {
        seen.send(input.response.to_string()).unwrap();
        1.0
    }));
    let (made, outcomes) = pool
        .score_while(&reward, |hand_over| {
            let mut answers = inputs(&["early", "late"]).into_iter();
            hand_over(answers.next().unwrap());
            let heard = first.recv_timeout(Duration::from_secs(5));
            answers.for_each(hand_over);
            Ok(heard.unwrap())
        })
        .unwrap();
    assert_eq!(made, "early", "scored before the second answer existed");
    assert_eq!(outcomes, vec![Outcome::Scored(Score::new(1.0)); 2]);
}

#[test]
fn a_failure_of_the_maker_waits_for_no_scorer() {
    let pool = ScoringPool::new(1, Duration::from_secs(60)).unwrap();
    let start = Instant::now();
    let failed = pool.score_while(&scorer(), |hand_over| {
        inputs(&["hang", "a"]).into_iter().for_each(hand_over);
        Err::<(), _>(Error::invalid("out of memory"))
    });
    assert!(failed.unwrap_err().to_string().contains("out of memory"));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        pool.score_while(&scorer(), |_| -> Result<()> { panic!("maker") })
    }));
    assert!(panicked.is_err() && start.elapsed() < Duration::from_secs(30));
    let after = pool.score_batch(&scorer(), inputs(&["abc"])).unwrap();
    assert_eq!(after, [Outcome::Scored(Score::new(3.0))]);
}
