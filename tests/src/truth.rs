//! The simulated driver's own account of every byte, and questions to it.
//!
//! The driver writes one JSON line per [`Event`] as it happens, from its object tree alone; nothing of the tracer is
//! involved. Tests compare a ledger with [`Truth`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One line of the truth log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `CLOCK_MONOTONIC`, nanoseconds, when the driver did it.
    pub t: u64,
    /// Number of the driver request: all that one request did shares it (freeing a subtree, closing a file).
    pub batch: u64,
    /// Process charged or concerned; 0 is the driver itself (an exported object whose owner is gone).
    pub pid: u32,
    /// Thread that made the request; 0 for the driver (closing a file).
    pub tid: u32,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// Memory was allocated.
    Alloc(Piece),
    /// Memory was freed by a request of the process.
    Free(Piece),
    /// Memory was freed because a driver file was closed (exit, crash, `close`).
    Reclaim(Piece),
    /// Memory went to another owner: `pid` no longer pays.
    Lost(Piece),
    /// Memory came from an owner that freed it while mapped here: `pid` pays from now on.
    Gained(Piece),
    /// A handle for another process's memory was made; it costs nothing.
    Import(Piece),
    /// An allocation failed.
    Failed {
        /// Bytes asked for.
        requested: u64,
        /// `NV_STATUS`.
        status: u32,
        /// GPU index, if the request got that far.
        gpu: Option<u32>,
    },
    /// The program reached a named point.
    Mark {
        /// Its name.
        name: String,
        /// GPU index that `expected` is about.
        gpu: u32,
        /// Live bytes of the process there, by the program's own arithmetic.
        expected: Option<u64>,
        /// Live bytes of the process there, by the driver.
        live: u64,
    },
    /// A control file (`nvidiactl`) was opened.
    Open {
        /// Number of the open file.
        file: u64,
    },
    /// A control file was closed for good.
    Close {
        /// Number of the open file.
        file: u64,
    },
}

/// A piece of memory in an [`Event`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// GPU index as NVML counts.
    pub gpu: u32,
    /// True for pinned host memory, which is no GPU memory.
    pub host: bool,
    /// Bytes as charged (rounded by the driver).
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Client handle.
    pub client: u32,
    /// Object handle.
    pub object: u32,
    /// Identity of the memory: stays with it through every handle and owner.
    pub memory: u64,
    /// What the simulated libcuda made it for, in the ledger's words (`context`, `cuda_malloc`, …).
    pub kind: String,
    /// What the program itself said of it (`control`, `label`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// The other process of `lost`, `gained` and `import`; else 0.
    pub peer: u32,
    /// Live bytes of `pid` on this GPU afterwards (host memory: on the host).
    pub live: u64,
}

/// A stretch of time in which one process paid for a piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Bytes.
    pub bytes: u64,
    /// Kind in the ledger's words: what the simulated libcuda made it for, or `ipc_import` for what another process did.
    pub kind: String,
    /// When it began.
    pub born: u64,
    /// When it ended.
    pub died: Option<u64>,
    /// How it ended: `free`, `reclaim`, `lost`.
    pub how: Option<&'static str>,
}

/// A parsed truth log.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Every event, in order.
    pub events: Vec<Event>,
}

impl Truth {
    /// Reads a log.
    ///
    /// # Errors
    /// When the file cannot be read or a complete line is no event.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        // The last line may be half written while the driver runs.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).with_context(|| format!("no truth event: {line}")))
            .collect::<Result<_>>()?;
        Ok(Self { events })
    }

    /// Live bytes of a process on a GPU at the end of the log.
    #[must_use]
    pub fn live(&self, pid: u32, gpu: u32) -> u64 {
        self.history(pid, gpu).last().map_or(0, |&(_, live)| live)
    }

    /// Live bytes of a process on a GPU after each driver request that changed them, with its time.
    #[must_use]
    pub fn history(&self, pid: u32, gpu: u32) -> Vec<(u64, u64)> {
        let mut steps: Vec<(u64, u64, u64)> = Vec::new();
        for event in self.events.iter().filter(|e| e.pid == pid) {
            let Some((piece, _)) = event.what.change() else { continue };
            if piece.host || piece.gpu != gpu {
                continue;
            }
            match steps.last_mut() {
                Some(last) if last.0 == event.batch => last.2 = piece.live,
                _ => steps.push((event.batch, event.t, piece.live)),
            }
        }
        let mut before = 0;
        steps.retain(|&(_, _, live)| std::mem::replace(&mut before, live) != live);
        steps.into_iter().map(|(_, t, live)| (t, live)).collect()
    }

    /// Everything a process ever paid for on a GPU, in order of birth.
    #[must_use]
    pub fn owned(&self, pid: u32, gpu: u32) -> Vec<Owned> {
        let mut rows: Vec<(u64, Owned)> = Vec::new();
        for event in self.events.iter().filter(|e| e.pid == pid) {
            let Some((piece, how)) = event.what.change() else { continue };
            if piece.host || piece.gpu != gpu {
                continue;
            }
            if how.is_empty() {
                let gained = matches!(event.what, What::Gained(_));
                let kind = if gained { "ipc_import".to_owned() } else { piece.kind.clone() };
                let row = Owned { bytes: piece.bytes, kind, born: event.t, died: None, how: None };
                rows.push((piece.memory, row));
            } else if let Some((_, row)) =
                rows.iter_mut().rev().find(|(memory, row)| *memory == piece.memory && row.died.is_none())
            {
                row.died = Some(event.t);
                row.how = Some(how);
            }
        }
        rows.into_iter().map(|(_, row)| row).collect()
    }

    /// Live bytes by kind at the end of the log.
    #[must_use]
    pub fn by_kind(&self, pid: u32, gpu: u32) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for row in self.owned(pid, gpu).into_iter().filter(|row| row.died.is_none()) {
            *kinds.entry(row.kind).or_default() += row.bytes;
        }
        kinds
    }

    /// Bytes a process ever allocated on a GPU (what it gained from others not counted).
    #[must_use]
    pub fn allocated(&self, pid: u32, gpu: u32) -> u64 {
        self.events
            .iter()
            .filter(|e| e.pid == pid)
            .filter_map(|e| match &e.what {
                What::Alloc(piece) if !piece.host && piece.gpu == gpu => Some(piece.bytes),
                _ => None,
            })
            .sum()
    }

    /// Processes that ever paid for GPU memory, in order of appearance.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for event in &self.events {
            let pays = event.what.change().is_some_and(|(piece, _)| !piece.host);
            if pays && event.pid != 0 && !pids.contains(&event.pid) {
                pids.push(event.pid);
            }
        }
        pids
    }

    /// Control files that are open, by the process that opened them.
    #[must_use]
    pub fn open_files(&self) -> BTreeMap<u64, u32> {
        let mut open = BTreeMap::new();
        for event in &self.events {
            match event.what {
                What::Open { file } => _ = open.insert(file, event.pid),
                What::Close { file } => _ = open.remove(&file),
                _ => {}
            }
        }
        open
    }
}

impl What {
    /// True when a process's bytes changed.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.change().is_some()
    }

    /// The piece whose owner changed, and how the ownership ended (empty: it began).
    fn change(&self) -> Option<(&Piece, &'static str)> {
        match self {
            Self::Alloc(piece) | Self::Gained(piece) => Some((piece, "")),
            Self::Free(piece) => Some((piece, "free")),
            Self::Reclaim(piece) => Some((piece, "reclaim")),
            Self::Lost(piece) => Some((piece, "lost")),
            _ => None,
        }
    }
}
