//! The rows: one a CUDA function (and its `_ptsz` twin, which takes the same arguments).
//!
//! Sources: prototypes from `cuda.h` and `cuda_runtime_api.h` of CUDA 11.8, 12.9 and 13.0; `since` of libcuda's rows
//! from `cudaTypedefs.h`. A prototype that changed under one exported name is given in every form, newest last; its row
//! reads only what all forms have in common. Tests compare all of it with the headers and the real libraries.

use super::{Lib, Row};

mod c10;
mod cuda_context;
mod cuda_graph;
mod cuda_memory;
mod cuda_pool;
mod cuda_vmm;
mod cudart_context;
mod cudart_graph;
mod cudart_memory;
mod cudart_share;
mod memory_saver;
mod nccl;

/// Every row by library. The order fixes the probe ids: newest ABI first within a function.
pub(super) static ALL: &[(Lib, &[Row])] = &[
    (Lib::Cuda, cuda_memory::ROWS),
    (Lib::Cuda, cuda_vmm::ROWS),
    (Lib::Cuda, cuda_pool::ROWS),
    (Lib::Cuda, cuda_graph::ROWS),
    (Lib::Cuda, cuda_context::ROWS),
    (Lib::Cudart, cudart_memory::ROWS),
    (Lib::Cudart, cudart_share::ROWS),
    (Lib::Cudart, cudart_graph::ROWS),
    (Lib::Cudart, cudart_context::ROWS),
    (Lib::Nccl, nccl::ROWS),
    (Lib::C10, c10::ROWS),
    (Lib::MemorySaver, memory_saver::ROWS),
];

/// What every file of rows needs.
mod prelude {
    pub(super) use super::super::effect::Effect::*;
    pub(super) use super::super::effect::Group::{self, Graph, Memory, Tensors};
    pub(super) use super::super::source::*;
    pub(super) use super::super::{Row, row};

    const fn word(offset: u32) -> Source {
        at_return(0, offset, 8)
    }

    /// The first 56 of 64 bytes of an IPC handle that argument 0 points to, after the call.
    pub(super) static IPC_WRITTEN: [Source; 7] = [word(0), word(8), word(16), word(24), word(32), word(40), word(48)];

    /// The same of an IPC handle passed by value.
    pub(super) static IPC_PASSED: [Source; 7] =
        [stack(8), stack(16), stack(24), stack(32), stack(40), stack(48), stack(56)];
}
