//! Writes a data set of short word problems: one JSONL file to train on and
//! one to hold out, without a question in common.
//!
//!     cargo run --release --example word_problems -- --out examples/data

use clap::Parser;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use verl::core::rollout::sample_seed;

#[derive(Parser)]
#[command(about = "Writes word problems with one-number answers as JSONL")]
struct Args {
    /// Folder of `word_problems_train.jsonl` and `word_problems_test.jsonl`.
    #[arg(long, default_value = "examples/data")]
    out: PathBuf,
    /// Questions to train on.
    #[arg(long, default_value_t = 800)]
    train: usize,
    /// Questions to hold out.
    #[arg(long, default_value_t = 250)]
    test: usize,
    /// Seed of the questions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A draw from `low..=high`.
struct Dice {
    seed: u64,
    draws: u64,
}

impl Dice {
    fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.draws += 1;
        low + sample_seed(self.seed, self.draws, 0, 0) % (high - low + 1)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.roll(0, words.len() as u64 - 1) as usize]
    }
}

/// A question and its answer.
fn question(dice: &mut Dice) -> (String, u64) {
    let who = dice.pick(&["Tom", "Mia", "Ben", "Ana", "Leo", "Zoe", "Sam", "Eva"]);
    let what = dice.pick(&[
        "apples", "books", "coins", "pens", "cards", "eggs", "stamps",
    ]);
    match dice.roll(0, 2) {
        0 => {
            let (a, b) = (dice.roll(1, 15), dice.roll(1, 9));
            let verb = dice.pick(&["buys", "finds", "gets"]);
            let text = format!(
                "{who} has {a} {what} and {verb} {b} more. How many {what} does {who} have now?"
            );
            (text, a + b)
        }
        1 => {
            let a = dice.roll(2, 15);
            let b = dice.roll(1, (a - 1).min(9));
            let verb = dice.pick(&["gives away", "loses", "sells"]);
            let text =
                format!("{who} has {a} {what} and {verb} {b} of them. How many {what} are left?");
            (text, a - b)
        }
        _ => {
            let (a, b) = (dice.roll(2, 5), dice.roll(2, 6));
            let text = format!(
                "There are {a} boxes with {b} {what} in each. How many {what} are there in all?"
            );
            (text, a * b)
        }
    }
}

fn write(path: &Path, rows: &[(String, u64)]) -> std::io::Result<()> {
    let line = |(question, answer): &(String, u64)| {
        let row = serde_json::json!({"prompt": question, "answer": answer.to_string()});
        format!("{row}\n")
    };
    std::fs::write(path, rows.iter().map(line).collect::<String>())?;
    println!("{}: {} questions", path.display(), rows.len());
    Ok(())
}

fn main() -> std::io::Result<()> {
    let args = Args::parse();
    let mut dice = Dice {
        seed: args.seed,
        draws: 0,
    };
    let (mut seen, mut rows) = (BTreeSet::new(), Vec::new());
    while rows.len() < args.train + args.test {
        let row = question(&mut dice);
        if seen.insert(row.0.clone()) {
            rows.push(row);
        }
    }
    let (train, test) = rows.split_at(args.train);
    std::fs::create_dir_all(&args.out)?;
    write(&args.out.join("word_problems_train.jsonl"), train)?;
    write(&args.out.join("word_problems_test.jsonl"), test)
}
