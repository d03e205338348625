//! The probe table: which functions are watched, where their values lie and what they do.
//!
//! One row a function; adding a probe is adding a row under [`rows`]. The kernel side knows nothing of CUDA: it gets a
//! [`tracer_ebpf::Spec`] for each probe id (memory words to read) and sends back a [`tracer_ebpf::Call`], which
//! [`Probe::decode`] turns into named values.

mod array;
mod decode;
mod effect;
mod rows;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::LazyLock;

use tracer_ebpf::{READS, Read, SPEC_QUIET, SPEC_STACK, SPEC_STACK_ON_FAILURE, Spec};

use crate::map::Map;

pub use decode::Values;
pub use effect::{Effect, Group};
pub use source::{Role, Source, Value, Word};

/// A library whose functions are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lib {
    /// The CUDA driver API, `libcuda.so.1`.
    Cuda,
    /// The CUDA runtime API, `libcudart.so.{11.0,12,13}`, or linked statically.
    Cudart,
    /// NCCL, `libnccl.so.2`.
    Nccl,
    /// `PyTorch`'s `libc10.so`.
    C10,
    /// `torch_memory_saver`'s hook, `torch_memory_saver_hook_mode_….abi3.so` (`torch_memory_saver_cpp.abi3.so` before 0.0.9).
    MemorySaver,
}

impl Lib {
    /// Every library.
    pub const ALL: [Self; 5] = [Self::Cuda, Self::Cudart, Self::Nccl, Self::C10, Self::MemorySaver];

    /// Result type of its functions, 0 meaning success.
    const fn status_type(self) -> &'static str {
        match self {
            Self::Cuda => "CUresult",
            Self::Cudart => "cudaError_t",
            Self::Nccl => "ncclResult_t",
            Self::C10 | Self::MemorySaver => "no status is returned",
        }
    }
}

impl fmt::Display for Lib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "libcuda",
            Self::Cudart => "libcudart",
            Self::Nccl => "libnccl",
            Self::C10 => "libc10",
            Self::MemorySaver => "torch_memory_saver",
        })
    }
}

/// Functions of one prototype and effect, as written in the table.
struct Row {
    effect: Effect,
    group: Group,
    since: &'static str,
    symbols: &'static [&'static str],
    signature: &'static str,
    values: &'static [Value],
    quiet: bool,
}

const fn row(
    effect: Effect,
    group: Group,
    since: &'static str,
    symbols: &'static [&'static str],
    signature: &'static str,
    values: &'static [Value],
) -> Row {
    Row { effect, group, since, symbols, signature, values, quiet: false }
}

impl Row {
    /// Only nesting matters: no record of a call that succeeds.
    const fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }
}

/// A probed function.
#[derive(Clone, Debug)]
pub struct Probe {
    /// Library that exports it.
    pub library: Lib,
    /// Exported name.
    pub symbol: &'static str,
    /// C prototype without the name; ` | ` separates the forms it had in different major versions.
    pub signature: &'static str,
    /// Version that introduced this ABI: CUDA's, NCCL's or `PyTorch`'s.
    pub since: &'static str,
    /// What it does.
    pub effect: Effect,
    /// Which probes it is placed with.
    pub group: Group,
    /// Its values.
    pub values: &'static [Value],
    /// True when only nesting matters: a call that succeeds sends no record.
    pub quiet: bool,
    /// Distinct memory reads of `values`, in order of appearance: the slots of [`tracer_ebpf::Call::values`].
    reads: Vec<Read>,
}

impl Probe {
    fn new(library: Lib, row: &Row, symbol: &'static str) -> Self {
        let mut reads = Vec::new();
        for value in row.values {
            value.source.reads(&mut |read| {
                if !reads.contains(&read) {
                    reads.push(read);
                }
            });
        }
        debug_assert!(reads.len() <= READS, "{symbol} needs {} reads", reads.len());
        Self {
            library,
            symbol,
            signature: row.signature,
            since: row.since,
            effect: row.effect,
            group: row.group,
            values: row.values,
            quiet: row.quiet,
            reads,
        }
    }

    /// What the kernel side must do for this probe.
    #[must_use]
    pub fn spec(&self) -> Spec {
        let mut spec = Spec::default();
        for (slot, read) in spec.reads.iter_mut().zip(&self.reads) {
            *slot = *read;
        }
        if self.can_fail_for_memory() {
            spec.flags |= SPEC_STACK_ON_FAILURE;
        }
        if matches!(self.effect, Effect::Reading | Effect::Communicator | Effect::TensorFailure) {
            // Where the target asked for free memory explains its later decisions; where it made a communicator is why
            // NCCL's threads, which run no Python, then take memory.
            spec.flags |= SPEC_STACK;
        }
        if self.quiet {
            spec.flags |= SPEC_QUIET;
        }
        spec
    }

    /// True when the call may need memory, so that a failure is worth a stack. Any runtime call may be a thread's first
    /// and create the context; in the driver, calls that only end something need none.
    #[must_use]
    pub fn can_fail_for_memory(&self) -> bool {
        self.returns_status() && (self.library == Lib::Cudart || !self.effect.ends())
    }

    /// True when the return register holds a status.
    fn returns_status(&self) -> bool {
        self.signature.strip_prefix(self.library.status_type()).is_some_and(|rest| rest.starts_with(" ("))
    }
}

static TABLE: LazyLock<Vec<Probe>> = LazyLock::new(|| {
    let rows = rows::ALL.iter().flat_map(|(library, rows)| rows.iter().map(move |row| (*library, row)));
    rows.flat_map(|(library, row)| row.symbols.iter().map(move |symbol| Probe::new(library, row, symbol))).collect()
});

static BY_SYMBOL: LazyLock<Map<&'static str, &'static Probe>> =
    LazyLock::new(|| TABLE.iter().map(|probe| (probe.symbol, probe)).collect());

/// The table. A probe's index is its id, below [`tracer_ebpf::PROBES`]. Ids hold for one build: traces name symbols.
#[must_use]
pub fn table() -> &'static [Probe] {
    &TABLE
}

/// The probe of an exported name (names are unique across libraries).
#[must_use]
pub fn by_symbol(symbol: &str) -> Option<&'static Probe> {
    BY_SYMBOL.get(symbol).copied()
}

/// The probe of an id, as a [`tracer_ebpf::Frame`] carries it.
#[must_use]
pub fn by_id(id: u32) -> Option<&'static Probe> {
    TABLE.get(usize::try_from(id).ok()?)
}

/// A library's probes with their ids.
pub fn of(library: Lib) -> impl Iterator<Item = (u32, &'static Probe)> {
    (0..).zip(table()).filter(move |(_, probe)| probe.library == library)
}
