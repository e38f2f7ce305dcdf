//! Faults injected at every point of a save.

use super::*;
use crate::{Error, Result};
use std::fs;
use std::path::Path;

/// Two files, one of them in a folder.
fn write(dir: &Path, content: &str) -> Result<()> {
    fs::create_dir(dir.join("actor")).map_err(Error::io(dir))?;
    fs::write(dir.join("actor/model.safetensors"), content.repeat(1000)).map_err(Error::io(dir))?;
    fs::write(dir.join("trainer.json"), content).map_err(Error::io(dir))
}

fn store(dir: &Path, keep: usize) -> CheckpointStore {
    CheckpointStore::new(dir, Some(keep)).unwrap()
}

fn step_of(store: &CheckpointStore) -> Option<u64> {
    store.latest().unwrap().0.map(|c| c.step)
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_whole_checkpoint_is_found_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 3);
    assert_eq!(store.latest().unwrap(), (None, vec![]));
    let saved = store.save(42, |tmp| write(tmp, "a")).unwrap();
    assert_eq!(saved.path, dir.path().join("step_00000042"));
    assert_eq!(store.latest().unwrap(), (Some(saved.clone()), vec![]));
    assert_eq!(Checkpoint::open(&saved.path).unwrap(), saved);
    assert_eq!(names(dir.path()), ["step_00000042"]);
}

#[test]
fn any_file_short_of_one_byte_is_noticed() {
    for file in ["actor/model.safetensors", "trainer.json", "manifest.json"] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 3);
        store.save(1, |tmp| write(tmp, "a")).unwrap();
        let newer = store.save(2, |tmp| write(tmp, "b")).unwrap();
        let path = newer.path.join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();

        let (found, skipped) = store.latest().unwrap();
        assert_eq!(found.map(|c| c.step), Some(1), "{file}");
        assert_eq!(skipped.len(), 1);
        let reason = skipped[0].reason.to_string();
        assert!(reason.contains(file), "{reason}");
        assert!(Checkpoint::open(&newer.path).is_err());
    }
}

#[test]
fn the_reason_for_skipping_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path(), None).unwrap();
    for step in 1..=6 {
        store.save(step, |tmp| write(tmp, "a")).unwrap();
    }
    let at = |step: u64| dir.path().join(format!("step_{step:08}"));
    fs::remove_file(at(6).join("manifest.json")).unwrap();
    fs::write(at(5).join("trainer.json"), "b").unwrap();
    fs::remove_file(at(4).join("trainer.json")).unwrap();
    fs::write(
        at(3).join("manifest.json"),
        r#"{"format_version": 2, "layout": "unheard of"}"#,
    )
    .unwrap();
    fs::remove_dir_all(at(2)).unwrap();
    fs::rename(at(1), at(2)).unwrap();

    let (found, skipped) = store.latest().unwrap();
    assert_eq!(found, None);
    let reasons: Vec<_> = skipped.iter().map(|s| s.reason.to_string()).collect();
    assert_eq!(
        reasons,
        [
            "it has no manifest.json; saving it was interrupted",
            "trainer.json is damaged: its checksum differs",
            "trainer.json: No such file or directory (os error 2)",
            "its format is version 2, and this build reads up to 1; update verl",
            "it holds step 1, but its folder is named for step 2",
        ]
    );
    assert!(
        skipped[0]
            .to_string()
            .starts_with("skipped the checkpoint ")
    );
    let message = Checkpoint::open(at(5)).unwrap_err().to_string();
    assert!(message.ends_with(
        "cannot resume from this checkpoint: trainer.json is damaged: its checksum differs"
    ));
}

#[test]
fn a_failing_or_panicking_writer_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 1);
    store.save(1, |tmp| write(tmp, "a")).unwrap();

    let full_disk = store.save(2, |tmp| {
        write(tmp, "b")?;
        Err(Error::io(tmp)(std::io::ErrorKind::StorageFull.into()))
    });
    assert!(
        full_disk
            .unwrap_err()
            .to_string()
            .contains("no storage space")
    );
    assert_eq!(step_of(&store), Some(1));

    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.save(3, |tmp| {
            write(tmp, "c")?;
            panic!("killed in mid-save")
        })
    }));
    assert!(panicking.is_err());
    assert_eq!(step_of(&store), Some(1));
    assert_eq!(names(dir.path()), ["step_00000001"]);
}

#[test]
fn what_a_killed_process_leaves_is_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    store(dir.path(), 2).save(1, |tmp| write(tmp, "a")).unwrap();
    for rubble in [".partial-step_00000002", ".trash-step_00000000"] {
        fs::create_dir(dir.path().join(rubble)).unwrap();
        write(&dir.path().join(rubble), "x").unwrap();
    }
    // Killed between the two renames that replace a checkpoint.
    fs::rename(
        dir.path().join("step_00000001"),
        dir.path().join(".replaced-step_00000001"),
    )
    .unwrap();
    assert_eq!(step_of(&store(dir.path(), 2)), Some(1));
    assert_eq!(names(dir.path()), ["step_00000001"]);
}

#[test]
fn only_the_newest_are_kept_and_only_whole_ones_count() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), 2);
    for step in [10, 20, 30] {
        store.save(step, |tmp| write(tmp, "a")).unwrap();
    }
    assert_eq!(names(dir.path()), ["step_00000020", "step_00000030"]);
    fs::remove_file(dir.path().join("step_00000030/manifest.json")).unwrap();
    store.save(40, |tmp| write(tmp, "b")).unwrap();
    assert_eq!(names(dir.path()), ["step_00000020", "step_00000040"]);
}

#[test]
fn a_step_saved_again_and_a_run_gone_back_leave_one_history() {
    let dir = tempfile::tempdir().unwrap();
    let store = CheckpointStore::new(dir.path(), None).unwrap();
    for step in [1, 2, 3] {
        store.save(step, |tmp| write(tmp, "old")).unwrap();
    }
    let again = store.save(2, |tmp| write(tmp, "new")).unwrap();
    assert_eq!(names(dir.path()), ["step_00000001", "step_00000002"]);
    assert_eq!(
        fs::read_to_string(again.path.join("trainer.json")).unwrap(),
        "new"
    );
}

#[test]
fn keeping_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        CheckpointStore::new(dir.path(), Some(0))
            .unwrap_err()
            .to_string(),
        "training.keep_checkpoints: 0 would delete each checkpoint once it is saved; set it to at least 1"
    );
}
