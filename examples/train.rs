//! Trains a language model as a YAML file says.
//!
//! ```text
//! scripts/fetch_smollm2.sh models/smollm2-135m-instruct
//! cargo run --release --example train -- examples/recipes/grpo_gsm8k_smollm2.yaml
//! cargo run --release --example train -- run.yaml actor.optim.lr=1e-6 rollout.n=16
//! ```
//! `--print-config` shows what the file comes to, every default included. What
//! the run writes is in its `output_dir`; the same command goes on from the
//! newest checkpoint there.

use clap::Parser;
use std::path::PathBuf;
use verl::core::config::RunConfig;
use verl::{Error, Run};

/// Trains a language model with reinforcement learning, as a YAML file says.
#[derive(Parser)]
struct Args {
    /// The configuration; docs/configuration.md lists its keys.
    config: PathBuf,
    /// Keys to set besides, as key.path=value.
    overrides: Vec<String>,
    /// Print the resolved configuration and stop.
    #[arg(long)]
    print_config: bool,
}

fn main() -> std::process::ExitCode {
    tracing_subscriber::fmt().with_target(false).init();
    match run(&Args::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> verl::Result<()> {
    if args.print_config {
        print!(
            "{}",
            RunConfig::from_file(&args.config, &args.overrides)?.to_yaml()?
        );
        return Ok(());
    }
    let mut run = Run::from_yaml(&args.config, &args.overrides)?;
    println!("{}", run.plan());
    if let Some(step) = run.resumed() {
        println!("going on after step {step}");
    }
    let stop = run.stop_handle();
    ctrlc::set_handler(move || stop.stop())
        .map_err(|e| Error::invalid(format!("Ctrl-C cannot be handled: {e}")))?;
    let summary = run.fit()?.summary;
    println!(
        "{}",
        serde_json::to_string_pretty(&summary).unwrap_or_default()
    );
    Ok(())
}
