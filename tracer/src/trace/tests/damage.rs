//! Damaged and hostile traces: what stands before the damage is kept, and a small file takes little memory.

use std::{
    cell::RefCell,
    io::{self, Write as _},
    rc::Rc,
};

use super::*;
use crate::trace::{lines, record::KINDS};

const HEAD: &str = "{\"header\":{\"format\":\"vramtrace\",\"major\":1}}\n";

/// A file whose length can be asked for.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records, each readable as soon as it is written, and where in the file each ends.
fn flushed(records: &[Record]) -> (Vec<u8>, Vec<usize>) {
    let file = Shared::default();
    let mut writer = Writer::new(file.clone()).unwrap();
    let mut ends = Vec::new();
    for record in records {
        writer.record(record).unwrap();
        writer.flush().unwrap();
        ends.push(file.0.borrow().len());
    }
    writer.finish().unwrap();
    (file.0.take(), ends)
}

fn all() -> Vec<Record> {
    [vec![Record::Header(header())], sample()].concat()
}

/// Text that decompresses to something else is told by the checksum at the latest.
#[test]
fn what_stands_before_a_flipped_bit_is_kept() {
    let (bytes, ends) = flushed(&all());
    for (at, bit) in (0..bytes.len()).flat_map(|at| [(at, at % 8), (at, (at + 3) % 8)]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        let whole = ends.iter().filter(|end| **end <= at).count();
        match read(&damaged) {
            Ok((records, truncated, _, damage)) => {
                assert!(records.len() >= whole && records[..whole] == all()[..whole], "bit {bit} of byte {at}");
                assert!(records == all() || truncated || damage.is_some(), "bit {bit} of byte {at}: no word of it");
            }
            Err(_) => assert_eq!(whole, 0, "bit {bit} of byte {at}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn lines_before_a_damaged_one_are_kept(at: prop::sample::Index, value: u8) {
        let mut text = zstd::decode_all(&write(&sample())[..]).unwrap();
        let at = at.index(text.len());
        text[at] = value;
        let whole = text[..at].iter().filter(|&&byte| byte == b'\n').count();
        if let Ok((records, ..)) = read(&zstd::encode_all(&text[..], 1).unwrap()) {
            prop_assert!(records.len() >= whole && records[..whole] == all()[..whole]);
        } else {
            prop_assert_eq!(whole, 0);
        }
    }

    #[test]
    fn every_kind_is_known_so_that_a_damaged_line_of_it_is_not_skipped(record in record()) {
        let line = serde_json::to_value(&record).unwrap();
        let kind = line.as_object().unwrap().keys().next().unwrap();
        prop_assert!(KINDS.contains(&kind.as_str()), "{}", kind);
    }
}

#[test]
fn a_damaged_line_of_every_kind_is_damage() {
    for kind in KINDS {
        let (_, _, unknown, damage) = read(&compress(&format!("{HEAD}{{\"{kind}\":7}}\n"))).unwrap();
        assert!(unknown == 0 && damage.is_some(), "{kind}");
    }
}

#[test]
fn a_small_file_does_not_fill_memory() {
    let mebibytes = |line: &str, count: usize| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.write_all(HEAD.as_bytes()).unwrap();
        let text = line.repeat((1 << 20) / line.len() + 1);
        (0..count).for_each(|_| encoder.write_all(text.as_bytes()).unwrap());
        encoder.finish().unwrap()
    };
    let notice = format!("{{\"notice\":{{\"t\":1,\"text\":\"{}\"}}}}\n", "x".repeat(8000));
    for (line, why) in [(notice.as_str(), "bytes of text"), ("{\"process\":{}}\n", ""), ("{\"nvml\":{}}\n", "one line")]
    {
        let bytes = mebibytes(line, 300);
        let (records, truncated, _, damage) = read(&bytes).unwrap();
        let damage = damage.unwrap();
        assert!(truncated && damage.contains(why), "{damage}");
        let most = (64 << 10) + bytes.len() + (300 << 10);
        assert!(records.len() < most, "{} records of {} bytes", records.len(), bytes.len());
    }
}

#[test]
fn an_honest_file_of_lines_that_are_nearly_alike_is_read() {
    let processes = (0..200).map(|pid| NvmlProcess { pid, bytes: Some(1 << 30) }).collect::<Vec<_>>();
    let sample = |t: u64| {
        Record::Nvml(Nvml {
            begin: t,
            t: t + 900_000,
            processes: processes.clone(),
            uuid: "GPU-0".into(),
            ..Nvml::default()
        })
    };
    let records: Vec<_> = (0..4000).map(|n| sample(n * 1_000_000_007)).collect();
    let bytes = write(&records);
    let (back, truncated, _, damage) = read(&bytes).unwrap();
    assert_eq!((back.len(), truncated, damage), (4001, true, None), "{} bytes", bytes.len());
}

#[test]
fn a_process_with_the_longest_arguments_fits_a_line() {
    let argv = vec!["\u{1}".repeat(4096); 128];
    let step = Step::Exec(Image { env: argv.clone(), argv, ..Image::default() });
    let record = Record::Process(Process { t: 1, pid: 7, step });
    assert!(serde_json::to_vec(&record).unwrap().len() < lines::MAX_LINE);
    assert_eq!(read(&write(&[record])).unwrap().0.len(), 2);
}

#[test]
fn deep_nesting_is_damage() {
    for open in ["[", "{\"a\":"] {
        let deep = open.repeat(100_000);
        for line in [format!("{deep}\n"), format!("{{\"notice\":{deep}\n"), format!("{{\"new\":{deep}\n")] {
            let (records, truncated, _, damage) = read(&compress(&format!("{HEAD}{line}"))).unwrap();
            assert_eq!((records.len(), truncated, damage.is_some()), (1, true, true));
        }
    }
}

#[test]
fn numbers_out_of_range_are_damage() {
    for number in ["-1", "18446744073709551616", "1e400", "1.5", "99999999999999999999999999999"] {
        let line = format!("{{\"rm\":{{\"t\":1,\"pid\":1,\"tid\":1,\"unmap\":{{\"base\":{number}}}}}}}\n");
        let (records, _, _, damage) = read(&compress(&format!("{HEAD}{line}"))).unwrap();
        assert_eq!((records.len(), damage.is_some()), (1, true), "{number}");
    }
}
