//! From a raw call to named values.

use std::collections::BTreeMap;

use tracer_ebpf::{ARGS, Call, Read};

use super::source::{Role, Source, Word};
use super::{Effect, Probe, array};

/// `CU_MEM_LOCATION_TYPE_DEVICE`, `cudaMemLocationTypeDevice`.
const LOCATION_DEVICE: u64 = 1;
/// `ncclInProgress`: what a non-blocking communicator returns from every call that goes on in the background.
const NCCL_IN_PROGRESS: i64 = 7;
/// Results of libcuda and libcudart that say how things are, not that a call went wrong: shutting down (every call while
/// the process exits), not ready, and peer access that was on or off already (`cuda.h`, `driver_types.h`; the same
/// numbers in both since CUDA 10.1).
const CUDA_STATES: [i64; 4] = [4, 600, 704, 705];
/// `CUDA_ERROR_NOT_FOUND`, `cudaErrorSymbolNotFound`.
const CUDA_NOT_FOUND: i64 = 500;

/// What a call says, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Device address returned or given.
    pub address: Option<u64>,
    /// Bytes asked for; known for a failed call too.
    pub size: Option<u64>,
    /// Handle returned or given.
    pub handle: Option<u64>,
    /// CUDA device ordinal.
    pub device: Option<i64>,
    /// Free bytes read.
    pub free: Option<u64>,
    /// Total bytes read.
    pub total: Option<u64>,
    /// Further values by name.
    pub more: BTreeMap<String, u64>,
    /// True when a value that the call must have could not be read from the target.
    pub unreadable: bool,
}

/// Why a value is not there.
enum Missing {
    /// The call failed, the union holds something else, or the value cannot be computed.
    Absent,
    /// The target's memory could not be read.
    Unreadable,
}

impl Probe {
    /// The call's result: 0 is success. Functions that return no status always succeed.
    #[must_use]
    pub fn result(&self, call: &Call) -> i64 {
        // Status types are C enums: the upper half of the register is undefined.
        if self.returns_status() { i64::from(call.ret as u32 as i32) } else { 0 }
    }

    /// True when the call failed, so that its out-values mean nothing.
    #[must_use]
    pub fn failed(&self, call: &Call) -> bool {
        !matches!((self.library, self.result(call)), (_, 0) | (super::Lib::Nccl, NCCL_IN_PROGRESS))
    }

    /// True when `result` tells that something went wrong. A look-up that finds nothing has done its work.
    #[must_use]
    pub fn is_failure(&self, result: i64) -> bool {
        let is_state = match self.library {
            super::Lib::Cuda | super::Lib::Cudart => {
                CUDA_STATES.contains(&result) || (self.effect == Effect::Lookup && result == CUDA_NOT_FOUND)
            }
            super::Lib::Nccl => result == NCCL_IN_PROGRESS,
            super::Lib::C10 | super::Lib::MemorySaver => false,
        };
        result != 0 && self.returns_status() && !is_state
    }

    /// Decodes a call of this probe. Out-values of a failed call are left out.
    #[must_use]
    pub fn decode(&self, call: &Call) -> Values {
        let mut values = Values::default();
        for value in self.values {
            match self.fetch(&value.source, call, &values.more) {
                Ok(word) => values.set(value.role, word, value.source.bits()),
                Err(Missing::Unreadable) => values.unreadable = true,
                Err(Missing::Absent) => {}
            }
        }
        values
    }

    fn fetch(&self, source: &Source, call: &Call, more: &BTreeMap<String, u64>) -> Result<u64, Missing> {
        match source {
            Source::Bits { word, shift, bits } => {
                let word = match word {
                    Word::Arg(n) => call.args[usize::from(*n) % ARGS],
                    Word::Memory(read) => self.memory(read, call)?,
                };
                Ok((word >> shift) & (u64::MAX >> (64 - u32::from(*bits))))
            }
            Source::Product(factors) => factors.iter().try_fold(1_u64, |product, factor| {
                product.checked_mul(self.fetch(factor, call, more)?).ok_or(Missing::Absent)
            }),
            Source::Digest(words) => words
                .iter()
                .try_fold(0xcbf2_9ce4_8422_2325, |hash, word| Ok(fnv1a(hash, self.fetch(word, call, more)?))),
            Source::When { tag, is, value } => {
                if self.fetch(tag, call, more)? != *is {
                    return Err(Missing::Absent);
                }
                self.fetch(value, call, more)
            }
            Source::Texels => array::bytes(more).ok_or(Missing::Absent),
        }
    }

    fn memory(&self, read: &Read, call: &Call) -> Result<u64, Missing> {
        if read.when == tracer_ebpf::AT_RETURN && self.failed(call) {
            return Err(Missing::Absent);
        }
        let slot = self.reads.iter().position(|known| known == read).ok_or(Missing::Absent)?;
        if call.unreadable & (1 << slot) != 0 {
            return Err(Missing::Unreadable);
        }
        Ok(call.values[slot])
    }
}

impl Source {
    /// Width of the value, for sign extension.
    fn bits(&self) -> u32 {
        match self {
            Self::Bits { bits, .. } => u32::from(*bits),
            Self::When { value, .. } => value.bits(),
            Self::Product(_) | Self::Digest(_) | Self::Texels => 64,
        }
    }
}

impl Values {
    /// Of several values for one role the first counts.
    fn set(&mut self, role: Role, word: u64, bits: u32) {
        match role {
            Role::Address => _ = self.address.get_or_insert(word),
            Role::Size => _ = self.size.get_or_insert(word),
            Role::Handle => _ = self.handle.get_or_insert(word),
            Role::Free => _ = self.free.get_or_insert(word),
            Role::Total => _ = self.total.get_or_insert(word),
            Role::Device => _ = self.device.get_or_insert(sign_extend(word, bits)),
            Role::Location => self.set_location(word),
            Role::More(name) => _ = self.more.entry(name.to_owned()).or_insert(word),
        }
    }

    fn set_location(&mut self, word: u64) {
        let (kind, id) = (word & 0xffff_ffff, word >> 32);
        if kind == LOCATION_DEVICE {
            self.device.get_or_insert(sign_extend(id, 32));
        } else {
            self.more.insert("location_type".into(), kind);
            self.more.insert("location_id".into(), id);
        }
    }
}

fn sign_extend(word: u64, bits: u32) -> i64 {
    let unused = 64 - bits;
    ((word << unused) as i64) >> unused
}

fn fnv1a(hash: u64, word: u64) -> u64 {
    word.to_le_bytes().iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
