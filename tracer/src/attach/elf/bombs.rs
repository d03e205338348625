//! Files that claim to be enormous, and are: full of holes, they cost whoever makes them nothing.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use object::elf;

use super::*;

/// Length of the files, bytes. ext4's limit is 16 TiB.
const HUGE: u64 = 1 << 40;
/// Where section headers are, and the size of one.
const HEADERS: u64 = 0x1000;
const ENTRY: u64 = size_of::<SectionHeader64<LE>>() as u64;

/// A section header: type, offset, size, section it links to.
type Header = (u32, u64, u64, u32);

/// A library of [`HUGE`] bytes with these section headers behind the empty first one; `change` may alter its file header.
fn bomb(headers: &[Header], change: impl FnOnce(&mut [u8; 64])) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.set_len(HUGE).unwrap();
    let mut header = [0_u8; 64];
    header[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', elf::ELFCLASS64, elf::ELFDATA2LSB, 1, 0]);
    header[16..20].copy_from_slice(&[elf::ET_DYN as u8, 0, elf::EM_X86_64 as u8, 0]);
    header[0x20..0x28].copy_from_slice(&64_u64.to_le_bytes());
    header[0x28..0x30].copy_from_slice(&HEADERS.to_le_bytes());
    header[0x36..0x38].copy_from_slice(&56_u16.to_le_bytes());
    header[0x3a..0x3c].copy_from_slice(&(ENTRY as u16).to_le_bytes());
    header[0x3c..0x3e].copy_from_slice(&(headers.len() as u16 + 1).to_le_bytes());
    change(&mut header);
    file.write_all_at(&header, 0).unwrap();
    for (n, header) in headers.iter().enumerate() {
        write_header(&file, n as u64 + 1, *header);
    }
    (dir, path)
}

fn write_header(file: &File, n: u64, (kind, offset, size, link): Header) {
    let mut bytes = [0_u8; ENTRY as usize];
    bytes[..4].copy_from_slice(&1_u32.to_le_bytes());
    bytes[4..8].copy_from_slice(&kind.to_le_bytes());
    bytes[0x18..0x20].copy_from_slice(&offset.to_le_bytes());
    bytes[0x20..0x28].copy_from_slice(&size.to_le_bytes());
    bytes[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
    file.write_all_at(&bytes, HEADERS + n * ENTRY).unwrap();
}

fn too_much(path: &Path) -> bool {
    let file = ElfFile::open(path).unwrap();
    matches!(file.resolve(["cuInit"]), Err(Error::TooMuch { .. }))
}

#[test]
fn a_symbol_table_without_end_is_given_up() {
    let half = HUGE / 2;
    let (_dir, path) = bomb(&[(elf::SHT_DYNSYM, half, half, 2), (elf::SHT_STRTAB, 0x2000, 16, 0)], |_| {});
    assert!(too_much(&path));
}

#[test]
fn many_tables_that_share_their_bytes_are_given_up() {
    let table = (elf::SHT_DYNSYM, 1 << 30, 24, 61);
    let mut headers = vec![table; 60];
    headers.push((elf::SHT_STRTAB, 1 << 31, HUGE / 2, 0));
    let (_dir, path) = bomb(&headers, |_| {});
    assert!(too_much(&path), "60 string tables of 64 MiB");
}

#[test]
fn the_number_of_headers_is_that_of_the_file_header() {
    // Values that mean "see the first section header", which says 2^32 - 1 (ELF gABI, "ELF Header").
    let (_dir, path) = bomb(&[], |header| header[0x38..0x3a].copy_from_slice(&[0xff, 0xff]));
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut first = [0_u8; ENTRY as usize];
    first[0x20..0x28].copy_from_slice(&u64::from(u32::MAX).to_le_bytes());
    first[0x2c..0x30].copy_from_slice(&u32::MAX.to_le_bytes());
    file.write_all_at(&first, HEADERS).unwrap();
    assert!(ElfFile::open(&path).unwrap().segments.len() <= 0xffff);
    file.write_all_at(&[0, 0], 0x3c).unwrap();
    assert_eq!(ElfFile::open(&path).unwrap().sections.len(), 0);
}

#[test]
fn sections_larger_than_wanted_are_left_out() {
    let headers = [(elf::SHT_PROGBITS, 0, HUGE, 0), (elf::SHT_STRTAB, 0x8000, 64, 0)];
    let (_dir, path) = bomb(&headers, |header| header[0x3e] = 2);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"\0.eh_frame\0", 0x8000).unwrap();
    let elf = ElfFile::open(&path).unwrap();
    let section = elf.section(".eh_frame").unwrap();
    assert_eq!(elf.contents(section, 64 << 20), None);
    // Compressed bytes are none that could be used, whatever they would unfold to.
    write_header(&file, 1, (elf::SHT_PROGBITS, 0, 64, 0));
    file.write_all_at(&u64::from(elf::SHF_COMPRESSED).to_le_bytes(), HEADERS + ENTRY + 8).unwrap();
    let elf = ElfFile::open(&path).unwrap();
    assert_eq!(elf.contents(elf.section(".eh_frame").unwrap(), 64 << 20), None);
}
