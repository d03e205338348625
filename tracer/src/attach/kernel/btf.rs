//! The kernel's own type information: function ids to hook, and where structure members are.
//!
//! Format: Documentation/bpf/btf.rst. aya keeps its reader's types private and knows no module (split) BTF, so this
//! reads the two things needed and nothing more. Input is checked at every step: a damaged file gives `None`.

use std::{path::Path, sync::Arc};

const MAGIC: u16 = 0xeb9f;
const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// One kernel image's types.
pub struct Btf {
    data: Vec<u8>,
    /// Where each type starts in `data`; the first has id `first_id`.
    types: Vec<usize>,
    first_id: u32,
    strings: std::ops::Range<usize>,
    /// String offsets below this belong to the base.
    first_string: u32,
    base: Option<Arc<Btf>>,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    btf: &'a Btf,
    at: usize,
}

impl Type<'_> {
    fn word(self, n: usize) -> Option<u32> {
        word(&self.btf.data, self.at + 4 * n)
    }

    fn kind(self) -> Option<u32> {
        Some((self.word(1)? >> 24) & 0x1f)
    }

    fn members(self) -> Option<usize> {
        Some(self.word(1)? as usize & 0xffff)
    }
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

/// Bytes after the 12 common ones, by kind.
fn extra(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => vlen * 12,
        KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
        2 | 7..=12 | 16 | KIND_TYPE_TAG => 0,
        _ => return None,
    })
}

impl Btf {
    /// Reads `vmlinux`'s types.
    ///
    /// # Errors
    /// The file cannot be read, or is not BTF.
    pub fn vmlinux() -> std::io::Result<Arc<Self>> {
        Self::file("/sys/kernel/btf/vmlinux".as_ref(), None).map(Arc::new)
    }

    /// Reads a module's types, which build on `base`.
    ///
    /// # Errors
    /// The module is not loaded, its file cannot be read, or it is not BTF.
    pub fn module(name: &str, base: &Arc<Self>) -> std::io::Result<Self> {
        Self::file(&Path::new("/sys/kernel/btf").join(name), Some(Arc::clone(base)))
    }

    fn file(path: &Path, base: Option<Arc<Self>>) -> std::io::Result<Self> {
        Self::parse(std::fs::read(path)?, base)
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{}: not BTF", path.display())))
    }

    /// Reads BTF from memory; `None` when it is damaged.
    #[must_use]
    pub fn parse(data: Vec<u8>, base: Option<Arc<Self>>) -> Option<Self> {
        if data.get(..2)? != MAGIC.to_le_bytes() {
            return None;
        }
        // btf_header: magic, version, flags, hdr_len@4, type_off@8, type_len@12, str_off@16, str_len@20.
        let header = word(&data, 4)? as usize;
        let begin = header.checked_add(word(&data, 8)? as usize)?;
        let end = begin.checked_add(word(&data, 12)? as usize)?;
        let text = header.checked_add(word(&data, 16)? as usize)?;
        let strings = text..text.checked_add(word(&data, 20)? as usize)?;
        if end > data.len() || strings.end > data.len() {
            return None;
        }
        let first_id = base.as_ref().map_or(1, |b| b.first_id + b.types.len() as u32);
        let first_string = base.as_ref().map_or(0, |b| b.first_string + b.strings.len() as u32);
        let mut btf = Self { data, types: Vec::new(), first_id, strings, first_string, base };
        let mut at = begin;
        while at < end {
            let current = Type { btf: &btf, at };
            let next = at + 12 + extra(current.kind()?, current.members()?)?;
            btf.types.push(at);
            at = next;
        }
        (at == end).then_some(btf)
    }

    fn get(&self, id: u32) -> Option<Type<'_>> {
        match id.checked_sub(self.first_id) {
            Some(n) => Some(Type { btf: self, at: *self.types.get(n as usize)? }),
            None => self.base.as_ref()?.get(id),
        }
    }

    fn string(&self, offset: u32) -> Option<&[u8]> {
        let Some(offset) = offset.checked_sub(self.first_string) else { return self.base.as_ref()?.string(offset) };
        self.data.get(self.strings.clone())?.get(offset as usize..)?.split(|b| *b == 0).next()
    }

    fn find(&self, kind: u32, name: &str) -> Option<(u32, Type<'_>)> {
        (self.first_id..)
            .zip(&self.types)
            .map(|(id, at)| (id, Type { btf: self, at: *at }))
            .find(|(_, t)| t.kind() == Some(kind) && t.word(0).and_then(|n| self.string(n)) == Some(name.as_bytes()))
    }

    /// Type id of a function of this image.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<u32> {
        self.find(KIND_FUNC, name).map(|(id, _)| id)
    }

    /// Offset in bytes of a member of a structure of this image: `offset("file", "f_path.dentry")`.
    #[must_use]
    pub fn offset(&self, structure: &str, path: &str) -> Option<u32> {
        let (_, mut current) = self.find(KIND_STRUCT, structure)?;
        let mut bits = 0;
        for name in path.split('.') {
            let (offset, id) = self.member(current, name.as_bytes(), 0)?;
            bits += offset;
            current = self.get(self.skip_modifiers(id)?)?;
        }
        Some(bits / 8)
    }

    /// A member's offset in bits and its type, also inside anonymous structures and unions.
    fn member(&self, of: Type<'_>, name: &[u8], depth: u32) -> Option<(u32, u32)> {
        // Anonymous members nest a few levels in the kernel; a loop in damaged data must end.
        if depth > 8 || !matches!(of.kind()?, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        let bitfields = of.word(1)? >> 31 == 1;
        for n in 0..of.members()? {
            let (text, id, raw) = (of.word(3 + 3 * n)?, of.word(4 + 3 * n)?, of.word(5 + 3 * n)?);
            let offset = if bitfields { raw & 0x00ff_ffff } else { raw };
            let text = self.string(text)?;
            if text == name {
                return Some((offset, id));
            }
            if text.is_empty()
                && let Some(inner) = self.skip_modifiers(id).and_then(|id| self.get(id))
                && let Some((more, id)) = self.member(inner, name, depth + 1)
            {
                return Some((offset + more, id));
            }
        }
        None
    }

    fn skip_modifiers(&self, mut id: u32) -> Option<u32> {
        for _ in 0..16 {
            let current = self.get(id)?;
            if !matches!(current.kind()?, KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_TYPE_TAG) {
                return Some(id);
            }
            id = current.word(2)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_kernel() {
        let btf = Btf::vmlinux().expect("a kernel with BTF");
        // `struct path` is two pointers, whatever the kernel: its members' offsets are known.
        assert_eq!(btf.offset("path", "mnt"), Some(0));
        assert_eq!(btf.offset("path", "dentry"), Some(8));
        let path = btf.offset("file", "f_path").unwrap();
        assert_eq!(btf.offset("file", "f_path.dentry"), Some(path + 8));
        assert!(btf.function("vm_mmap_pgoff").is_some());
        assert_eq!(btf.function("no_such_function_here"), None);
        assert_eq!(btf.offset("file", "no_such_member"), None);
    }

    #[test]
    fn damaged() {
        let whole = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        for cut in [0, 1, 8, 23, 24, 1000, whole.len() / 2, whole.len() - 1] {
            assert!(Btf::parse(whole[..cut].to_vec(), None).is_none(), "cut at {cut}");
        }
    }
}
