//! The list of a checkpoint's files with their sizes and checksums.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Version of the checkpoint layout that this build writes. It reads this one
/// and older ones.
pub const FORMAT_VERSION: u32 = 1;

pub(super) const FILE_NAME: &str = "manifest.json";

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format_version: u32,
    pub step: u64,
    files: Vec<FileEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileEntry {
    /// Relative to the checkpoint, with `/` between folders.
    path: String,
    bytes: u64,
    crc32c: u32,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The manifest, which is written last, is not there.
    #[error("it has no {FILE_NAME}; saving it was interrupted")]
    NoManifest,
    /// The manifest is there but damaged.
    #[error("its {FILE_NAME} cannot be read: {0}")]
    BadManifest(String),
    /// It comes from a later version of this library.
    #[error(
        "its format is version {found}, and this build reads up to {FORMAT_VERSION}; update verl"
    )]
    NewerFormat {
        /// The version found.
        found: u32,
    },
    /// The folder's name and its content disagree.
    #[error("it holds step {found}, but its folder is named for step {named}")]
    WrongStep {
        /// Step in the manifest.
        found: u64,
        /// Step in the name.
        named: u64,
    },
    /// A file is gone or cannot be read.
    #[error("{file}: {message}")]
    Unreadable {
        /// The file, within the checkpoint.
        file: String,
        /// What the operating system said.
        message: String,
    },
    /// A file is shorter or longer than it was.
    #[error("{file} has {found} bytes instead of {expected}")]
    WrongSize {
        /// The file, within the checkpoint.
        file: String,
        /// Bytes when it was saved.
        expected: u64,
        /// Bytes now.
        found: u64,
    },
    /// A file's content has changed.
    #[error("{file} is damaged: its checksum differs")]
    WrongChecksum {
        /// The file, within the checkpoint.
        file: String,
    },
}

/// How thoroughly to look at a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Check {
    /// Sizes only.
    Sizes,
    /// Sizes and contents.
    Contents,
}

impl Manifest {
    /// Flushes every file and folder under `dir` to the disk, then writes the
    /// manifest and flushes that.
    pub(super) fn seal(dir: &Path, step: u64) -> Result<()> {
        let mut files = Vec::new();
        collect(dir, "", &mut files)?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            step,
            files,
        };
        let path = dir.join(FILE_NAME);
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|e| Error::malformed(&path, e.to_string()))?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&path)?;
            file.write_all(&text)?;
            file.sync_all()
        };
        write().map_err(Error::io(&path))?;
        sync_dir(dir)
    }

    /// Reads the manifest of `dir` and compares the files with it.
    pub(super) fn verify(dir: &Path, check: Check) -> Result<Manifest, Fault> {
        let text = match fs::read(dir.join(FILE_NAME)) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(Fault::NoManifest),
            Err(e) => return Err(Fault::BadManifest(e.to_string())),
        };
        let damaged = |e: serde_json::Error| Fault::BadManifest(e.to_string());
        // The version is read first: a later one may have another layout.
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let Version {
            format_version: found,
        } = serde_json::from_slice(&text).map_err(damaged)?;
        if found > FORMAT_VERSION {
            return Err(Fault::NewerFormat { found });
        }
        let manifest: Manifest = serde_json::from_slice(&text).map_err(damaged)?;
        manifest
            .files
            .iter()
            .try_for_each(|file| file.verify(dir, check))?;
        Ok(manifest)
    }
}

impl FileEntry {
    fn verify(&self, dir: &Path, check: Check) -> Result<(), Fault> {
        let path: PathBuf = dir.join(&self.path);
        let unreadable = |e: std::io::Error| Fault::Unreadable {
            file: self.path.clone(),
            message: e.to_string(),
        };
        let found = fs::metadata(&path).map_err(unreadable)?.len();
        if found != self.bytes {
            return Err(Fault::WrongSize {
                file: self.path.clone(),
                expected: self.bytes,
                found,
            });
        }
        if check == Check::Contents && checksum(&path).map_err(unreadable)? != self.crc32c {
            return Err(Fault::WrongChecksum {
                file: self.path.clone(),
            });
        }
        Ok(())
    }
}

/// Lists the files under `dir` and flushes each, then the folder itself.
fn collect(dir: &Path, prefix: &str, out: &mut Vec<FileEntry>) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(Error::io(dir))? {
        let entry = entry.map_err(Error::io(dir))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(Error::io(&path))?;
        let Some(name) = entry
            .file_name()
            .to_str()
            .map(|name| format!("{prefix}{name}"))
        else {
            return Err(Error::malformed(
                &path,
                "a file name that is not Unicode cannot go into a checkpoint",
            ));
        };
        if kind.is_dir() {
            collect(&path, &format!("{name}/"), out)?;
        } else if kind.is_file() {
            // Opened for writing, which flushing needs on some systems.
            let file = File::options()
                .append(true)
                .open(&path)
                .map_err(Error::io(&path))?;
            file.sync_all().map_err(Error::io(&path))?;
            let bytes = file.metadata().map_err(Error::io(&path))?.len();
            let crc32c = checksum(&path).map_err(Error::io(&path))?;
            out.push(FileEntry {
                path: name,
                bytes,
                crc32c,
            });
        } else {
            return Err(Error::malformed(
                &path,
                "only plain files and folders can go into a checkpoint",
            ));
        }
    }
    sync_dir(dir)
}

fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    let mut crc = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc),
            n => crc = crc32c::crc32c_append(crc, &buffer[..n]),
        }
    }
}

/// Makes the names within `dir` durable. Systems other than Unix have no such
/// call, and do it by themselves.
pub(super) fn sync_dir(dir: &Path) -> Result<()> {
    if cfg!(unix) {
        File::open(dir)
            .and_then(|d| d.sync_all())
            .map_err(Error::io(dir))?;
    }
    Ok(())
}
