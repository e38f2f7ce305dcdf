//! TensorBoard event files.
//!
//! A file is a sequence of records, each framed by lengths and masked
//! CRC-32C sums; a record is an `Event` protocol buffer. Both are simple
//! enough to be written here, which saves two dependencies:
//!
//! ```text
//! Event      { wall_time: double = 1; step: int64 = 2; file_version: string = 3;
//!              summary: Summary = 5; session_log: SessionLog = 7 }
//! Summary    { value: repeated Value = 1 }
//! Value      { tag: string = 1; simple_value: float = 2 }
//! SessionLog { status: enum = 1 }             START = 1
//! ```

use super::{Completion, Metrics, Summary, Tracker};
use crate::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Writes an event file that TensorBoard shows as scalar curves.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: BufWriter<File>,
}

impl TensorBoard {
    /// Opens a new event file in the folder `dir`. When the run goes on after
    /// step `resumed`, TensorBoard is told to forget later steps of the files
    /// before it; otherwise those files are deleted.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, resumed: Option<u64>) -> Result<Self> {
        let dir = dir.as_ref();
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
        let earlier = event_files(dir)?;
        let number = match resumed {
            Some(_) => earlier.len(),
            None => {
                for path in earlier {
                    std::fs::remove_file(&path).map_err(Error::io(&path))?;
                }
                0
            }
        };
        // TensorBoard reads the files of a folder in the order of their names.
        let path = dir.join(format!("{PREFIX}{:010}.verl.{number}", wall_time() as u64));
        let file = File::create(&path).map_err(Error::io(&path))?;
        let mut board = TensorBoard {
            path,
            file: BufWriter::new(file),
        };
        board.record(&Event::new(0).text(3, "brain.Event:2"))?;
        if let Some(step) = resumed {
            board.record(&Event::new(step + 1).bytes(7, &Proto::default().varint(1, 1).0))?;
        }
        board.file.flush().map_err(Error::io(&board.path))?;
        Ok(board)
    }

    fn record(&mut self, event: &Event) -> Result<()> {
        self.file
            .write_all(&frame(&event.0))
            .map_err(Error::io(&self.path))
    }
}

impl Tracker for TensorBoard {
    fn log_step(&mut self, metrics: &Metrics) -> Result<()> {
        let values = metrics
            .iter()
            .fold(Proto::default(), |summary, (tag, value)| {
                summary.bytes(1, &Proto::default().text(1, tag).float(2, value as f32).0)
            });
        self.record(&Event::new(metrics.step).bytes(5, &values.0))?;
        self.file.flush().map_err(Error::io(&self.path))
    }

    fn log_completions(&mut self, _: &[Completion]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> Result<()> {
        self.file.flush().map_err(Error::io(&self.path))
    }
}

const PREFIX: &str = "events.out.tfevents.";

fn event_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths: std::io::Result<Vec<_>> =
        std::fs::read_dir(dir).and_then(|entries| entries.map(|e| Ok(e?.path())).collect());
    let mut paths = paths.map_err(Error::io(dir))?;
    paths.retain(|p| {
        p.file_name()
            .and_then(|n| n.to_str())
            .is_some_and(|n| n.starts_with(PREFIX))
    });
    Ok(paths)
}

fn wall_time() -> f64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0.0, |t| t.as_secs_f64())
}

/// A record: length, its sum, the data, its sum, all little-endian.
fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend(length);
    out.extend(masked_crc(&length).to_le_bytes());
    out.extend(data);
    out.extend(masked_crc(data).to_le_bytes());
    out
}

/// A sum of data that itself holds sums would be weak, so they are masked.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// Protocol buffer fields, one after the other.
#[derive(Debug, Default)]
struct Proto(Vec<u8>);

type Event = Proto;

impl Proto {
    /// The time and step that every event starts with.
    fn new(step: u64) -> Self {
        Proto::default().double(1, wall_time()).varint(2, step)
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.raw_varint(field << 3 | wire_type);
    }

    fn raw_varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn varint(mut self, field: u64, n: u64) -> Self {
        self.tag(field, 0);
        self.raw_varint(n);
        self
    }

    fn double(mut self, field: u64, x: f64) -> Self {
        self.tag(field, 1);
        self.0.extend(x.to_le_bytes());
        self
    }

    fn float(mut self, field: u64, x: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(x.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.tag(field, 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_frames_are_tensorflows() {
        // The header record that every TensorFlow writer begins with.
        let length = 24u64.to_le_bytes();
        assert_eq!(
            masked_crc(&length),
            u32::from_le_bytes([0xa3, 0x7f, 0x4b, 0x22])
        );
        let framed = frame(b"abc");
        assert_eq!((framed.len(), &framed[..8]), (19, &3u64.to_le_bytes()[..]));
    }

    #[test]
    fn varints_take_seven_bits_a_byte() {
        assert_eq!(Proto::default().varint(2, 300).0, [0x10, 0xac, 0x02]);
        assert_eq!(Proto::default().text(1, "ab").0, [0x0a, 2, b'a', b'b']);
    }

    #[test]
    fn a_fresh_run_replaces_event_files_and_a_resumed_one_adds_to_them() {
        let dir = tempfile::tempdir().unwrap();
        for (resumed, files) in [(None, 1), (Some(3), 2), (None, 1)] {
            let mut board = TensorBoard::open(dir.path(), resumed).unwrap();
            let mut metrics = Metrics::new(4);
            metrics.set("actor/lr", f64::NAN);
            board.log_step(&metrics).unwrap();
            assert_eq!(event_files(dir.path()).unwrap().len(), files);
        }
    }
}
