//! Programs that aya cannot load as we need them: many uprobes a link, and hooks in module functions.

use std::{
    collections::HashSet,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use aya::{Ebpf, maps::Map};
use aya_obj::{
    Object, ProgramSection,
    generated::bpf_attach_type::{BPF_TRACE_FENTRY, BPF_TRACE_FEXIT},
};

use super::{
    Error,
    btf::Btf,
    sys::{self, Purpose},
};

/// The object's programs, relocated against the maps that aya made.
pub(super) struct Programs {
    object: Object,
}

impl Programs {
    pub(super) fn new(elf: &[u8], ebpf: &Ebpf) -> Result<Self, Error> {
        let bad = |e: &dyn std::fmt::Display| Error::Map("relocation", e.to_string());
        let mut object = Object::parse(elf).map_err(|e| bad(&e))?;
        let maps: Vec<_> = object.maps.drain().collect();
        let fds: Vec<(&str, RawFd, _)> =
            maps.iter().filter_map(|(name, map)| Some((name.as_str(), map_fd(ebpf.map(name)?)?, map))).collect();
        let text: HashSet<_> = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_maps(fds.into_iter(), &text).map_err(|e| bad(&e))?;
        object.relocate_calls(&text).map_err(|e| bad(&e))?;
        object.sanitize_functions(aya::features());
        Ok(Self { object })
    }

    /// Loads a program by name.
    pub(super) fn load(&self, name: &str, purpose: Purpose<'_>) -> Result<OwnedFd, Error> {
        let failed = |source| Error::Program { name: name.to_owned(), source };
        let missing = || failed(io::Error::from(io::ErrorKind::NotFound));
        let program = self.object.programs.get(name).ok_or_else(missing)?;
        let code = self.object.functions.get(&program.function_key()).ok_or_else(missing)?;
        sys::load(&code.instructions, &program.license, purpose).map_err(failed)
    }

    /// Loads a tracing program for `function` and attaches it. `module` is the module whose BTF `btf` is.
    pub(super) fn attach(
        &self,
        name: &str,
        btf: &Btf,
        module: Option<BorrowedFd<'_>>,
        function: &str,
    ) -> Result<OwnedFd, Error> {
        let failed = |source| Error::Program { name: format!("{name} on {function}"), source };
        let id = btf.function(function).ok_or_else(|| failed(io::Error::other("the kernel has no such function")))?;
        let entry = matches!(self.object.programs.get(name).map(|p| &p.section), Some(ProgramSection::FEntry { .. }));
        let attach = if entry { BPF_TRACE_FENTRY } else { BPF_TRACE_FEXIT };
        let program = self.load(name, Purpose::Tracing { attach, function: id, module })?;
        sys::attach_tracing(&program).map_err(failed)
    }
}

/// Descriptor of a map, of the kinds the object has.
fn map_fd(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(m) | Map::HashMap(m) | Map::LruHashMap(m) | Map::RingBuf(m) => Some(m.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}
