//! Where a probe finds its values.
//!
//! x86-64 System V: the first six integer arguments are `rdi rsi rdx rcx r8 r9`, here 0 to 5. A struct of more than 16
//! bytes passed by value lies on the stack from `[rsp + 8]` on (at entry `[rsp]` is the return address) and takes no
//! register, so the arguments after it move up. The upper half of a register that holds a 32-bit argument is undefined.

use tracer_ebpf::{AT_ENTRY, AT_RETURN, BASE_STACK, Read};

/// What a value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Device (or host) address.
    Address,
    /// Bytes asked for.
    Size,
    /// Handle: memory, pool, array, context, module, graph, stream, communicator.
    Handle,
    /// CUDA device ordinal, signed (-1 is the CPU where the API says so).
    Device,
    /// `CUmemLocation` as one 64-bit word: type below, id above. Type 1 is a device; any other is kept by its parts.
    Location,
    /// Free bytes.
    Free,
    /// Total bytes.
    Total,
    /// Anything else, by name.
    More(&'static str),
}

/// A word of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Argument register.
    Arg(u8),
    /// Target memory, read in the kernel at entry or return.
    Memory(Read),
}

/// How a value is obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `bits` bits of a word, from bit `shift` up.
    Bits {
        /// The word.
        word: Word,
        /// Lowest bit.
        shift: u8,
        /// Number of bits: 1 to 64.
        bits: u8,
    },
    /// Product; none when it overflows.
    Product(&'static [Source]),
    /// 64-bit FNV-1a hash: makes opaque bytes comparable.
    Digest(&'static [Source]),
    /// `value` where `tag` has the value `is`, else nothing.
    When {
        /// Discriminant of a union.
        tag: &'static Source,
        /// Its value.
        is: u64,
        /// What to read then.
        value: &'static Source,
    },
    /// Bytes of an array, from the extents and formats decoded before it ([`super::array`]).
    Texels,
}

/// A value of a call: what it means and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Meaning.
    pub role: Role,
    /// Where it is found.
    pub source: Source,
}

/// [`Source::Texels`].
pub(super) const TEXELS: Source = Source::Texels;

/// Argument `n`, 64 bits.
pub(super) const fn arg(n: u8) -> Source {
    arg_bits(n, 0, 64)
}

/// Argument `n`, an `int`, `unsigned` or enum.
pub(super) const fn arg32(n: u8) -> Source {
    arg_bits(n, 0, 32)
}

/// `bits` bits of argument `n` from bit `shift` up: small structs passed in one register.
pub(super) const fn arg_bits(n: u8, shift: u8, bits: u8) -> Source {
    Source::Bits { word: Word::Arg(n), shift, bits }
}

const fn memory(when: u8, base: u8, offset: u32, len: u8) -> Source {
    Source::Bits { word: Word::Memory(Read { when, base, len, pad: 0, offset }), shift: 0, bits: len * 8 }
}

/// `len` bytes at argument `n` plus `offset`, as the caller passed them.
pub(super) const fn at_entry(n: u8, offset: u32, len: u8) -> Source {
    memory(AT_ENTRY, n, offset, len)
}

/// `len` bytes at argument `n` plus `offset`, as the callee left them. Ignored when the call failed.
pub(super) const fn at_return(n: u8, offset: u32, len: u8) -> Source {
    memory(AT_RETURN, n, offset, len)
}

/// The 64-bit out-value that argument `n` points to.
pub(super) const fn out(n: u8) -> Source {
    at_return(n, 0, 8)
}

/// The 32-bit out-value that argument `n` points to.
pub(super) const fn out32(n: u8) -> Source {
    at_return(n, 0, 4)
}

/// The 64-bit word at `[rsp + offset]` at entry; the first struct passed by value begins at 8.
pub(super) const fn stack(offset: u32) -> Source {
    memory(AT_ENTRY, BASE_STACK, offset, 8)
}

/// See [`Source::Product`].
pub(super) const fn product(factors: &'static [Source]) -> Source {
    Source::Product(factors)
}

/// See [`Source::Digest`].
pub(super) const fn digest(words: &'static [Source]) -> Source {
    Source::Digest(words)
}

/// See [`Source::When`].
pub(super) const fn when(tag: &'static Source, is: u64, value: &'static Source) -> Source {
    Source::When { tag, is, value }
}

impl Source {
    /// The lower 32 bits of a 64-bit word.
    pub(super) const fn low(self) -> Self {
        self.half(0)
    }

    /// The upper 32 bits of a 64-bit word.
    pub(super) const fn high(self) -> Self {
        self.half(32)
    }

    const fn half(self, shift: u8) -> Self {
        match self {
            Self::Bits { word, .. } => Self::Bits { word, shift, bits: 32 },
            other => other,
        }
    }

    /// Calls `found` with every memory read the source needs.
    pub(super) fn reads(&self, found: &mut impl FnMut(Read)) {
        match self {
            Self::Bits { word: Word::Memory(read), .. } => found(*read),
            Self::Bits { word: Word::Arg(_), .. } | Self::Texels => {}
            Self::Product(parts) | Self::Digest(parts) => parts.iter().for_each(|part| part.reads(found)),
            Self::When { tag, value, .. } => {
                tag.reads(found);
                value.reads(found);
            }
        }
    }
}

macro_rules! roles {
    ($($name:ident $role:ident $doc:literal)*) => {
        $(#[doc = $doc] pub(super) const fn $name(source: Source) -> Value { Value { role: Role::$role, source } })*
    };
}

roles! {
    address Address "An address."
    size Size "Bytes asked for. Of several sizes the first that can be had counts."
    handle Handle "A handle."
    device Device "A device ordinal."
    location Location "A `CUmemLocation`."
    free Free "Free bytes."
    total Total "Total bytes."
}

/// A value with a name of its own.
pub(super) const fn more(name: &'static str, source: Source) -> Value {
    Value { role: Role::More(name), source }
}
