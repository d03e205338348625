//! `torch_memory_saver`: lets go of a model's weights and KV cache while something else uses the GPU, and takes them again
//! (`--enable-memory-saver` of `SGLang`; its `release_memory_occupation`). `since` is its version (csrc/entrypoint.cpp).

use super::prelude::*;

// Labels of what cuMemUnmap, cuMemRelease and cuMemCreate do inside. A null tag means every tag.
#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    row(Pause, Memory, "0.0.6", &["tms_pause"], "void (const char *tag)", &[]),
    row(Resume, Memory, "0.0.6", &["tms_resume"], "void (const char *tag)", &[]),
];
