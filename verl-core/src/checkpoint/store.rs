//! A folder of checkpoints: saving, choosing, clearing away.

use super::manifest::{Check, Fault, Manifest, sync_dir};
use crate::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "step_";
/// Being written.
const PARTIAL: &str = ".partial-";
/// Moved aside for a new checkpoint of the same step.
const REPLACED: &str = ".replaced-";
/// Being deleted.
const TRASH: &str = ".trash-";

/// A whole checkpoint: its files are those that were saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The folder.
    pub path: PathBuf,
    /// Steps that had been trained.
    pub step: u64,
}

impl Checkpoint {
    /// Opens a checkpoint folder and verifies every file.
    ///
    /// # Errors
    /// [`Error::Malformed`] with the [`Fault`].
    pub fn open(path: impl AsRef<Path>) -> Result<Checkpoint> {
        let path = path.as_ref();
        match Manifest::verify(path, Check::Contents) {
            Ok(manifest) => Ok(Checkpoint {
                path: path.to_path_buf(),
                step: manifest.step,
            }),
            Err(fault) => Err(Error::malformed(
                path,
                format!("cannot resume from this checkpoint: {fault}"),
            )),
        }
    }
}

/// A checkpoint that [`CheckpointStore::latest`] passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its folder.
    pub path: PathBuf,
    /// Why.
    pub reason: Fault,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "skipped the checkpoint {}: {}",
            self.path.display(),
            self.reason
        )
    }
}

/// A folder of checkpoints, owned by one run.
///
/// # Example
/// ```
/// use verl_core::checkpoint::CheckpointStore;
///
/// let dir = std::env::temp_dir().join(format!("checkpoint-doc-{}", std::process::id()));
/// let store = CheckpointStore::new(&dir, Some(2))?;
/// for step in 1..=3 {
///     store.save(step, |folder| {
///         std::fs::write(folder.join("weights"), [step as u8]).map_err(verl_core::Error::io(folder))
///     })?;
/// }
/// let (newest, skipped) = store.latest()?;
/// assert_eq!(newest.map(|c| c.step), Some(3));
/// assert!(skipped.is_empty() && !dir.join("step_00000001").exists());
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), verl_core::Error>(())
/// ```
#[derive(Debug)]
pub struct CheckpointStore {
    dir: PathBuf,
    keep: Option<usize>,
}

impl CheckpointStore {
    /// Opens or creates the folder `dir` and clears away what an interrupted
    /// run left half-done. The newest `keep` checkpoints are kept, or all.
    ///
    /// # Errors
    /// When the folder cannot be written, or `keep` is 0.
    pub fn new(dir: impl Into<PathBuf>, keep: Option<usize>) -> Result<Self> {
        let store = CheckpointStore {
            dir: dir.into(),
            keep,
        };
        if keep == Some(0) {
            return Err(Error::config(
                "training.keep_checkpoints",
                "0 would delete each checkpoint once it is saved; set it to at least 1",
            ));
        }
        fs::create_dir_all(&store.dir).map_err(Error::io(&store.dir))?;
        store.recover()?;
        Ok(store)
    }

    /// Saves what `write` puts into the folder it is given as the checkpoint
    /// of `step`. When it or anything else fails, nothing that was saved
    /// before is touched.
    ///
    /// Once the new checkpoint is safe, those beyond the number to keep are
    /// deleted, and so are those of later steps, which a run that went back to
    /// an earlier checkpoint has abandoned.
    ///
    /// # Errors
    /// Those of `write`, and [`Error::Io`].
    pub fn save(&self, step: u64, write: impl FnOnce(&Path) -> Result<()>) -> Result<Checkpoint> {
        let partial = Partial(self.dir.join(format!("{PARTIAL}{}", name(step))));
        remove(&partial.0)?;
        fs::create_dir(&partial.0).map_err(Error::io(&partial.0))?;
        write(&partial.0)?;
        Manifest::seal(&partial.0, step)?;

        let path = self.dir.join(name(step));
        let replaced = self.dir.join(format!("{REPLACED}{}", name(step)));
        if path.exists() {
            remove(&replaced)?;
            fs::rename(&path, &replaced).map_err(Error::io(&path))?;
        }
        fs::rename(&partial.0, &path).map_err(Error::io(&path))?;
        sync_dir(&self.dir)?;
        remove(&replaced)?;
        self.clear(step)?;
        Ok(Checkpoint { path, step })
    }

    /// The newest whole checkpoint, and the newer ones that are not whole.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn latest(&self) -> Result<(Option<Checkpoint>, Vec<Skipped>)> {
        let mut skipped = Vec::new();
        for (step, path) in self.steps()?.into_iter().rev() {
            match verify(step, &path, Check::Contents) {
                Ok(()) => return Ok((Some(Checkpoint { path, step }), skipped)),
                Err(reason) => skipped.push(Skipped { path, reason }),
            }
        }
        Ok((None, skipped))
    }

    /// Deletes what saving `newest` has made superfluous.
    fn clear(&self, newest: u64) -> Result<()> {
        let mut whole = 0;
        for (step, path) in self.steps()?.into_iter().rev() {
            let superfluous = match verify(step, &path, Check::Sizes) {
                // Not ours to judge.
                Err(Fault::NewerFormat { .. }) => false,
                Err(_) => true,
                Ok(()) if step > newest => true,
                Ok(()) => {
                    whole += 1;
                    self.keep.is_some_and(|keep| whole > keep)
                }
            };
            if superfluous {
                // Renamed first: a half-deleted checkpoint never looks whole.
                let trash = self.dir.join(format!("{TRASH}{}", name(step)));
                remove(&trash)?;
                fs::rename(&path, &trash).map_err(Error::io(&path))?;
                remove(&trash)?;
            }
        }
        Ok(())
    }

    /// Undoes or finishes what was under way when an earlier run ended.
    fn recover(&self) -> Result<()> {
        for path in self.entries()? {
            let Some(file_name) = path.file_name().and_then(|n| n.to_str()) else {
                continue;
            };
            if file_name.starts_with(PARTIAL) || file_name.starts_with(TRASH) {
                remove(&path)?;
            } else if let Some(original) = file_name.strip_prefix(REPLACED) {
                let original = self.dir.join(original);
                match original.exists() {
                    true => remove(&path)?,
                    false => fs::rename(&path, &original).map_err(Error::io(&path))?,
                }
            }
        }
        Ok(())
    }

    /// Checkpoint folders by step, oldest first.
    fn steps(&self) -> Result<Vec<(u64, PathBuf)>> {
        let numbered = |path: PathBuf| {
            let step = path
                .file_name()?
                .to_str()?
                .strip_prefix(PREFIX)?
                .parse()
                .ok()?;
            Some((step, path))
        };
        let mut steps: Vec<_> = self.entries()?.into_iter().filter_map(numbered).collect();
        steps.sort();
        Ok(steps)
    }

    fn entries(&self) -> Result<Vec<PathBuf>> {
        fs::read_dir(&self.dir)
            .and_then(|dir| dir.map(|entry| Ok(entry?.path())).collect())
            .map_err(Error::io(&self.dir))
    }
}

fn name(step: u64) -> String {
    format!("{PREFIX}{step:08}")
}

fn verify(step: u64, path: &Path, check: Check) -> Result<(), Fault> {
    match Manifest::verify(path, check)?.step {
        found if found == step => Ok(()),
        found => Err(Fault::WrongStep { found, named: step }),
    }
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io(dir)(e)),
        _ => Ok(()),
    }
}

/// A folder that is deleted unless it has been renamed, also in a panic.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // What cannot be deleted now is deleted when the store opens again.
        let _ = fs::remove_dir_all(&self.0);
    }
}
