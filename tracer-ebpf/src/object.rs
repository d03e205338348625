//! What dynamic linkers map.

use bytemuck::{Pod, Zeroable};

use crate::Header;

/// Bytes of a path in [`LibraryLoaded`], with its NUL: `PATH_MAX`, include/uapi/linux/limits.h.
pub const NAME: usize = 4096;

/// An object that a process's dynamic linker mapped (`struct link_map`, link.h); it is not yet relocated, no code of it
/// has run.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Object {
    /// Kind [`KIND_OBJECT`], or [`KIND_LIBRARY`] in a [`LibraryLoaded`].
    pub header: Header,
    /// What the kernel side knows it by, if it is of interest.
    pub key: NameKey,
    /// Load bias (`l_addr`).
    pub bias: u64,
    /// Address of its dynamic section (`l_ld`).
    pub dynamic: u64,
    /// Bytes valid in the path that follows.
    pub name_len: u32,
    /// Not 0: libcuda or libcudart was among the objects.
    pub drivers: u32,
}

/// A process's dynamic linker loaded a library of interest.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct LibraryLoaded {
    /// The library.
    pub object: Object,
    /// Path as the dynamic linker knows it (`link_map.l_name`).
    pub name: [u8; NAME],
}

/// A path as processes of one mount namespace and root directory see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(C)]
pub struct NameKey {
    /// Hash of the path with its lowest bit set, [`UNKNOWABLE`], or 0 for none.
    pub hash: u64,
    /// Hash of the mount namespace's number and the root directory's identity.
    pub view: u64,
}

/// In place of the hash of a path that says too little: a relative one, or one so long that only its beginning is hashed.
pub const UNKNOWABLE: u64 = 1;

/// One step of the hash of a zero-padded path, eight bytes at a time (FNV-1a's constants, with a shift so that high bytes
/// reach the low bits too).
#[must_use]
pub const fn hash_step(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    mixed ^ (mixed >> 29)
}

/// Start value of [`hash_step`].
pub const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
