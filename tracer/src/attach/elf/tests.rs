//! Resolution in a library built here, and its survival of damage.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::attach::plan::{Plan, Point};
use crate::probe;

const SOURCE: &str = r#"
extern int cuMemFree_v2(unsigned long);
int cuMemAlloc_v2(void *p, unsigned long n) { return cuMemFree_v2(n) + (p != 0); }
int cuMemAllocAsync_ptsz(void *p, unsigned long n, void *s) { return p == s; }
int cuMemAllocAsync(void *p, unsigned long n, void *s) __attribute__((alias("cuMemAllocAsync_ptsz")));
int cuMemMap = 7;
const char cuMemUnmap[] = "read-only";
int chosen(void) { return 3; }
void *choose(void) { return chosen; }
int cuMemCreate(void) __attribute__((ifunc("choose")));
__attribute__((visibility("hidden"))) int cuMemRelease(void) { return 5; }
__asm__(".globl cuIpcGetMemHandle\n.text\ncuIpcGetMemHandle:\nret\n");
__asm__(".globl cuIpcCloseMemHandle\ncuIpcCloseMemHandle = 0x1234\n");
"#;

/// Compiles a shared object. A linker driver is there wherever Rust builds.
pub(in crate::attach) fn build(path: &Path, source: &str) {
    let c = path.with_extension("c");
    fs::write(&c, source).unwrap();
    let flags = ["-shared", "-fPIC", "-O1", "-fcf-protection=branch", "-nostdlib", "-Wl,-soname,libcuda.so.1"];
    let built =
        Command::new("cc").args(flags).arg("-Wl,--build-id=0x0123456789abcdef").arg("-o").arg(path).arg(&c).output();
    let built = built.expect("a C compiler is needed to test symbol resolution");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    build(&path, SOURCE);
    fs::read(path).unwrap()
});

/// The library in a file, changed.
fn library(change: impl FnOnce(&mut Vec<u8>)) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    let mut bytes = LIBRARY.clone();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    (dir, path)
}

fn resolve<'n>(names: &[&'n str]) -> Vec<Definition<'n>> {
    let (_dir, path) = library(|_| {});
    ElfFile::open(&path).unwrap().resolve(names.iter().copied()).unwrap()
}

/// File offset of a function by the toolchain's own reading of the file.
fn offset_by_nm(name: &str) -> u64 {
    let (_dir, path) = library(|_| {});
    let nm = Command::new("nm").arg(&path).output().unwrap();
    let text = String::from_utf8(nm.stdout).unwrap();
    let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name)).unwrap();
    // The linker lays code out at file offset = address in so small a library.
    u64::from_str_radix(line.split_whitespace().next().unwrap(), 16).unwrap()
}

#[test]
fn functions_are_found_behind_their_landing_pad() {
    let found = resolve(&["cuMemAlloc_v2"]);
    assert_eq!(found, [Definition { name: "cuMemAlloc_v2", offset: Ok(offset_by_nm("cuMemAlloc_v2") + 4) }]);
    let at = found[0].offset.unwrap() as usize;
    assert_eq!(LIBRARY[at - 4..at], [0xf3, 0x0f, 0x1e, 0xfa]);
    let bare = resolve(&["cuIpcGetMemHandle"]);
    assert_eq!(LIBRARY[bare[0].offset.unwrap() as usize], 0xc3, "assembly without a type, on its only instruction");
}

#[test]
fn hidden_functions_are_found_in_the_full_symbol_table() {
    assert_eq!(resolve(&["cuMemRelease"])[0].offset, Ok(offset_by_nm("cuMemRelease") + 4));
}

#[test]
fn what_is_no_function_is_refused() {
    assert_eq!(resolve(&["cuMemFree_v2"]), [], "an import is no definition");
    assert_eq!(resolve(&["cuMemMap"])[0].offset, Err(Refusal::Data));
    assert_eq!(resolve(&["cuMemUnmap"])[0].offset, Err(Refusal::Data));
    assert_eq!(resolve(&["cuMemCreate"])[0].offset, Err(Refusal::Indirect));
    assert_eq!(resolve(&["cuIpcCloseMemHandle"])[0].offset, Err(Refusal::NotExecutable), "an absolute symbol");
}

#[test]
fn a_library_says_who_it_is() {
    let (_dir, path) = library(|_| {});
    let file = ElfFile::open(&path).unwrap();
    assert_eq!(file.build_id().as_deref(), Some("0123456789abcdef"));
    assert_eq!(file.soname().as_deref(), Some("libcuda.so.1"));
}

#[test]
fn one_address_gets_one_probe() {
    let (_dir, path) = library(|_| {});
    let plan = Plan::new(&ElfFile::open(&path).unwrap(), probe::of(probe::Lib::Cuda)).unwrap();
    assert_eq!(plan.aliases, [("cuMemAllocAsync_ptsz", "cuMemAllocAsync")]);
    let mut names: Vec<_> = plan.points.iter().map(|p| probe::by_id(p.probe).unwrap().symbol).collect();
    names.sort_unstable();
    assert_eq!(names, ["cuIpcGetMemHandle", "cuMemAllocAsync", "cuMemAlloc_v2", "cuMemRelease"]);
    assert_eq!(plan.refused.len(), 4);
    assert!(plan.missing.contains(&"cuMemFree_v2"));
    let rows = probe::of(probe::Lib::Cuda).count();
    assert_eq!(plan.points.len() + plan.aliases.len() + plan.refused.len() + plan.missing.len(), rows);
    assert!(plan.points.is_sorted_by(|a: &Point, b: &Point| a.offset < b.offset));
}

#[test]
fn foreign_files_are_named() {
    let says = |change: &dyn Fn(&mut Vec<u8>), words: &str| {
        let (_dir, path) = library(|bytes| change(bytes));
        let error = ElfFile::open(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says(&|bytes| bytes.truncate(3), "a few bytes");
    says(&|bytes| bytes.truncate(40), "ends within its header");
    says(&|bytes| bytes[0] = b'#', "no ELF file");
    says(&|bytes| bytes[4] = 1, "32-bit");
    says(&|bytes| bytes[5] = 2, "big-endian");
    says(&|bytes| bytes[18] = 183, "machine 183");
    says(&|bytes| bytes[16] = 1, "type 1");
    says(&|bytes| bytes.truncate(4096), "section headers lie beyond its end");
    says(&|bytes| bytes[56..58].fill(0xff), "lie beyond its end");
    says(&|bytes| bytes[58] = 1, "unknown size");
}

#[test]
fn absurd_counts_take_no_memory() {
    // Every section claims to hold 2^60 bytes.
    let (_dir, path) = library(|bytes| {
        let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let count = usize::from(u16::from_le_bytes([bytes[60], bytes[61]]));
        for section in 0..count {
            bytes[headers + section * 64 + 32..][..8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
        }
    });
    let error = ElfFile::open(&path).unwrap().resolve(["cuMemAlloc_v2"]).unwrap_err().to_string();
    assert!(error.contains("lies beyond its end"), "{error}");
}

#[test]
fn one_name_for_thousands_of_functions_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many.so");
    let source: String = (0..5000).map(|n| format!("int f{n}(void) {{ return {n}; }}\n")).collect();
    build(&path, &source);
    let mut bytes = fs::read(&path).unwrap();
    let file = ElfFile::open(&path).unwrap();
    let table = file.sections_of(elf::SHT_DYNSYM).next().unwrap();
    let symbols = &mut bytes[table.sh_offset.get(LE) as usize..][..table.sh_size.get(LE) as usize];
    let first: [u8; 4] = symbols[24..28].try_into().unwrap();
    symbols.chunks_exact_mut(24).for_each(|symbol| symbol[..4].copy_from_slice(&first));
    fs::write(&path, &bytes).unwrap();
    let names: Vec<String> = (0..5000).map(|n| format!("f{n}")).collect();
    let error = ElfFile::open(&path).unwrap().resolve(names.iter().map(String::as_str)).unwrap_err().to_string();
    assert!(error.contains("over and over"), "{error}");
}

#[test]
fn a_string_table_larger_than_memory_is_read_in_place() {
    // The same table, moved behind a hole: 80 MiB that take no disk, names at the far end.
    let (_dir, path) = library(|_| {});
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let hole = 80_u64 << 20;
    let at = |offset: usize| u64::from_le_bytes(LIBRARY[offset..offset + 8].try_into().unwrap());
    let headers = at(40) as usize;
    let kind = |section: usize| u32::from_le_bytes(LIBRARY[headers + section * 64 + 4..][..4].try_into().unwrap());
    let dynsym = (0..).find(|section| kind(*section) == object::elf::SHT_DYNSYM).unwrap();
    let link = u32::from_le_bytes(LIBRARY[headers + dynsym * 64 + 40..][..4].try_into().unwrap()) as usize;
    let (start, len) = (at(headers + link * 64 + 24), at(headers + link * 64 + 32));
    let end = LIBRARY.len() as u64;
    file.write_all_at(&LIBRARY[start as usize..][..len as usize], end + hole).unwrap();
    file.write_all_at(&end.to_le_bytes(), (headers + link * 64 + 24) as u64).unwrap();
    file.write_all_at(&(hole + len).to_le_bytes(), (headers + link * 64 + 32) as u64).unwrap();
    let (symbols, count) = (at(headers + dynsym * 64 + 24), at(headers + dynsym * 64 + 32) / 24);
    for symbol in 0..count {
        let name = symbols + symbol * 24;
        let offset = u32::from_le_bytes(LIBRARY[name as usize..][..4].try_into().unwrap()) + hole as u32;
        file.write_all_at(&offset.to_le_bytes(), name).unwrap();
    }
    let moved = ElfFile::open(&path).unwrap();
    assert_eq!(moved.resolve(["cuMemAlloc_v2"]).unwrap(), resolve(&["cuMemAlloc_v2"]));
}

/// Bytes to overwrite: where, with what.
fn hits(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(Index, u8)>> {
    prop::collection::vec((any::<Index>(), any::<u8>()), count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_gives_an_answer_or_an_error(hits in hits(1..40), cut: Index, whole: bool) {
        let (_dir, path) = library(|bytes| {
            let len = bytes.len();
            hits.iter().for_each(|(at, byte)| bytes[at.index(len)] = *byte);
            bytes.truncate(if whole { len } else { cut.index(len) });
        });
        survive(&path);
    }

    /// Most bytes of a library are code: aim at the headers too.
    #[test]
    fn damaged_headers_give_an_answer_or_an_error(hits in hits(1..6)) {
        let (_dir, path) = library(|bytes| {
            let headers = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
            let places: Vec<usize> = (6..512).chain(headers..bytes.len()).collect();
            hits.iter().for_each(|(at, byte)| bytes[places[at.index(places.len())]] = *byte);
        });
        survive(&path);
    }
}

/// Every question is answered, and no offset leads out of the file.
fn survive(path: &Path) {
    let Ok(file) = ElfFile::open(path) else { return };
    let _ = (file.build_id(), file.soname());
    let len = fs::metadata(path).unwrap().len();
    if let Ok(plan) = Plan::of_everything(&file) {
        assert!(plan.points.iter().all(|point| point.offset <= len));
    }
}
