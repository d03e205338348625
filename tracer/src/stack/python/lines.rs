//! From a position in a code object to a source line: CPython's line tables.

/// How a version encodes lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `co_lnotab` (up to 3.9): `Objects/lnotab_notes.txt`.
    Lnotab,
    /// `co_linetable` of 3.10: PEP 626, `Objects/lnotab_notes.txt`.
    Ranges,
    /// `co_linetable` since 3.11: Objects/locations.md.
    Locations,
}

/// What a table says of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// This line.
    At(u32),
    /// The code there belongs to no line.
    None,
    /// Nothing: the table is damaged, or another code's.
    Unknown,
}

/// Source line of the instruction `offset` bytes into the code.
pub(super) fn line(format: Format, table: &[u8], first: i32, offset: u32) -> Line {
    match format {
        Format::Lnotab => lnotab(table, first, offset),
        Format::Ranges => ranges(table, first, offset),
        Format::Locations => locations(table, first, offset),
    }
}

fn at(line: i64) -> Line {
    u32::try_from(line).map_or(Line::Unknown, Line::At)
}

/// Pairs of an unsigned address step and a signed line step. The last pair that does not pass the position counts; there
/// is no end, so no position is outside.
fn lnotab(table: &[u8], first: i32, offset: u32) -> Line {
    let (mut address, mut line) = (0, i64::from(first));
    for [step, lines] in pairs(table) {
        address += u32::from(step);
        if address > offset {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    at(line)
}

/// Pairs of the bytes a range takes and a signed line step; -128 is a range without a line.
fn ranges(table: &[u8], first: i32, offset: u32) -> Line {
    let (mut end, mut line) = (0, i64::from(first));
    for [bytes, lines] in pairs(table) {
        end += u32::from(bytes);
        let lines = lines.cast_signed();
        if lines != i8::MIN {
            line += i64::from(lines);
        }
        if offset < end {
            return if lines == i8::MIN { Line::None } else { at(line) };
        }
    }
    Line::Unknown
}

fn pairs(table: &[u8]) -> impl Iterator<Item = [u8; 2]> {
    table.chunks_exact(2).map(|pair| [pair[0], pair[1]])
}

/// Entries of one byte (highest bit, kind, length in code units of 2 bytes) and what the kind says follows.
fn locations(table: &[u8], first: i32, offset: u32) -> Line {
    let (mut end, mut line) = (0, i64::from(first));
    let mut rest = table.iter().copied();
    while let Some(head) = rest.next() {
        if head & 0x80 == 0 {
            return Line::Unknown;
        }
        end += (u32::from(head & 7) + 1) * 2;
        let kind = head >> 3 & 15;
        let step = match kind {
            // Columns within the same line, in one byte.
            0..=9 => rest.next().map(|_| 0),
            // A step of 0 to 2 lines; columns in two bytes.
            10..=12 => rest.nth(1).map(|_| i64::from(kind) - 10),
            13 => signed(&mut rest),
            // Line step, end line, columns.
            14 => signed(&mut rest).filter(|_| (0..3).all(|_| unsigned(&mut rest).is_some())),
            _ => Some(0),
        };
        let Some(step) = step else { return Line::Unknown };
        line += step;
        if offset < end {
            return if kind == 15 { Line::None } else { at(line) };
        }
    }
    Line::Unknown
}

/// Six bits a byte, lowest first; bit 6 says that more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let (mut value, mut shift) = (0_u32, 0);
    loop {
        let byte = bytes.next()?;
        value |= u32::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            return Some(value);
        }
        shift += 6;
    }
}

/// The sign is in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    let magnitude = i64::from(value >> 1);
    Some(if value & 1 == 1 { -magnitude } else { magnitude })
}
