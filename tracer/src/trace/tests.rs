use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, symlink};

use proptest::collection::vec;
use proptest::prelude::*;

use super::record::{
    Alloc, Call, Footer, Header, Image, MAJOR, MINOR, Notice, Nvml, NvmlProcess, Op, Outcome, Process, Record, Rm, Step,
};
use super::{Error, Reader, Writer};

mod arbitrary;
mod damage;
mod quick;

use arbitrary::record;

fn header() -> Header {
    Header { format: "vramtrace".into(), major: MAJOR, minor: MINOR, ..Header::default() }
}

fn write(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("writer");
    writer.record(&Record::Header(header())).expect("header");
    for record in records {
        writer.record(record).expect("record");
    }
    writer.finish().expect("finish")
}

fn compress(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).expect("compress")
}

fn footer() -> Record {
    Record::Footer(Footer { t: 9, outcome: Outcome::Exited { code: 0 }, events: 3 })
}

/// All records, or those before the damage and its message.
fn read(bytes: &[u8]) -> Result<(Vec<Record>, bool, u64, Option<String>), Error> {
    let mut reader = Reader::from_read(std::io::Cursor::new(bytes.to_vec()))?;
    let mut records = Vec::new();
    let mut damage = None;
    for record in reader.by_ref() {
        match record {
            Ok(record) => records.push(record),
            Err(e) => damage = Some(e.to_string()),
        }
    }
    assert!(reader.next().is_none(), "the end is the end");
    Ok((records, reader.truncated(), reader.unknown(), damage))
}

fn sample() -> Vec<Record> {
    let alloc = Alloc { client: 1, parent: 2, object: 3, class: 0x40, size: Some(2 << 20), ..Alloc::default() };
    vec![
        Record::Process(Process { t: 1, pid: 7, step: Step::Forked { parent: 1 } }),
        Record::Rm(Rm {
            t: 2,
            pid: 7,
            tid: 7,
            calls: ["cuMemAlloc_v2".into()].into(),
            op: Op::Alloc(alloc),
            ..Rm::default()
        }),
        Record::Call(Call { t: 3, start: 2, api: "cuMemAlloc_v2".into(), size: Some(5), ..Call::default() }),
        footer(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_survive_the_round_trip(records in vec(record(), 0..20)) {
        let (back, ..) = read(&write(&records)).unwrap();
        prop_assert_eq!(&back[1..], &records[..]);
    }

    #[test]
    fn flipped_bits_never_panic(flips in vec((any::<prop::sample::Index>(), 0u8..8), 1..4)) {
        let mut bytes = write(&sample());
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Ok((records, ..)) = read(&bytes) {
            prop_assert!(records.len() <= sample().len() + 1);
        }
    }

}

#[test]
fn cut_at_every_byte_reads_up_to_there() {
    // Flushed after each record, so that a cut anywhere must keep all records flushed before it.
    let mut writer = Writer::new(Vec::new()).unwrap();
    let mut all = vec![Record::Header(header())];
    all.extend(sample());
    for record in &all {
        writer.record(record).unwrap();
        writer.flush().unwrap();
    }
    let bytes = writer.finish().unwrap();
    let mut most = 0;
    for cut in 0..bytes.len() {
        let (records, truncated, _, damage) = read(&bytes[..cut]).unwrap();
        assert_eq!(damage, None, "cut at {cut}");
        assert_eq!(records, all[..records.len()], "cut at {cut}");
        assert!(records.len() >= most, "cut at {cut} lost records");
        most = records.len();
        // Only the checksum may be missing when the footer is there.
        assert!(truncated || records.len() == all.len(), "cut at {cut}");
    }
    assert_eq!(most, all.len());
    assert!(!read(&bytes).unwrap().1);
}

#[test]
fn cut_in_the_middle_of_a_line_drops_the_line() {
    let text = "{\"header\":{\"format\":\"vramtrace\",\"major\":1}}\n{\"notice\":{\"t\":1,\"te";
    let (records, truncated, _, damage) = read(&compress(text)).unwrap();
    assert_eq!((records.len(), truncated, damage), (1, true, None));
}

#[test]
fn what_is_flushed_is_readable_while_the_writer_lives() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.vrt");
    let mut writer = Writer::create(&path, false).unwrap();
    writer.record(&Record::Header(header())).unwrap();
    writer.record(&Record::Notice(Notice { t: 1, text: "seen".into() })).unwrap();
    writer.flush().unwrap();
    writer.record(&Record::Notice(Notice { t: 2, text: "lost".into() })).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    let records: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(records.len(), 2);
    assert!(reader.truncated());
}

#[test]
fn unknown_kinds_and_fields_are_skipped() {
    let text = concat!(
        "{\"header\":{\"format\":\"vramtrace\",\"major\":1,\"minor\":7,\"new\":[1]}}\n",
        "{\"from_the_future\":{\"t\":1}}\n",
        "{\"rm\":{\"t\":1,\"pid\":1,\"tid\":1,\"new_operation\":{\"x\":1}}}\n",
        "{\"rm\":{\"t\":1,\"pid\":1,\"tid\":1,\"new_field\":2,\"free\":{\"client\":1,\"object\":2,\"new\":3}}}\n",
    );
    let (records, _, unknown, damage) = read(&compress(text)).unwrap();
    assert_eq!((records.len(), unknown, damage), (2, 2, None));
}

#[test]
fn a_line_that_is_no_record_ends_the_trace_with_a_reason() {
    for bad in ["{\"rm\":{\"t\":1,\"new_operation\":{}}}", "[]", "{", "{\"a\":1,\"b\":2}", "{\"rm\":{\"t\":\"x\"}}"] {
        let text = format!("{{\"header\":{{\"format\":\"vramtrace\",\"major\":1}}}}\n{bad}\n{{\"notice\":{{}}}}\n");
        let (records, truncated, _, damage) = read(&compress(&text)).unwrap();
        assert_eq!((records.len(), truncated), (1, true), "{bad}");
        assert!(damage.unwrap().starts_with("trace: damaged after line 1: "), "{bad}");
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let text = "{\"header\":{\"format\":\"vramtrace\",\"major\":2,\"tool\":\"9.1.0\",\"gpus\":{\"changed\":true}}}\n";
    let error = read(&compress(text)).unwrap_err().to_string();
    assert_eq!(error, "trace: format 2 was written by a newer vramtrace (9.1.0); this one reads up to 1");
}

#[test]
fn foreign_files_are_refused() {
    let foreign: [&[u8]; 4] = [b"\x7fELF\x02\x01\x01", b"{}", &compress("hello\n"), &compress("{\"header\":{}}\n")];
    for bytes in foreign {
        assert!(matches!(read(bytes), Err(Error::NotATrace { .. })));
    }
    assert!(matches!(Reader::open("/".as_ref()), Err(Error::NotATrace { .. })));
    assert!(matches!(Reader::open("/nonexistent".as_ref()), Err(Error::Io { .. })));
}

#[test]
fn endless_lines_are_bounded() {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(b"{\"header\":{\"format\":\"vramtrace\",\"major\":1}}\n").unwrap();
    for _ in 0..=super::lines::MAX_LINE / (1 << 20) + 1 {
        encoder.write_all(&vec![b'a'; 1 << 20]).unwrap();
    }
    let (records, truncated, _, damage) = read(&encoder.finish().unwrap()).unwrap();
    assert_eq!((records.len(), truncated), (1, true));
    assert!(damage.unwrap().contains("longer than"));
}

#[test]
fn a_frame_after_a_frame_is_read() {
    let mut bytes = write(&[]);
    bytes.extend(compress("{\"notice\":{\"t\":1,\"text\":\"second\"}}\n"));
    assert_eq!(read(&bytes).unwrap().0.len(), 2);
}

#[test]
fn output_is_opened_safely() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("victim"), "precious").unwrap();
    symlink(at("victim"), at("link")).unwrap();
    fs::hard_link(at("victim"), at("hard")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["link", "hard", "fifo"] {
        assert!(matches!(Writer::create(&at(name), true), Err(Error::Unsafe { .. })), "{name}");
        assert!(matches!(Writer::create(&at(name), false), Err(Error::Exists(_))), "{name}");
    }
    assert!(Writer::create(dir.path(), true).is_err());
    assert_eq!(fs::read_to_string(at("victim")).unwrap(), "precious");

    let mut writer = Writer::create(&at("new"), false).unwrap();
    writer.record(&Record::Header(header())).unwrap();
    writer.finish().unwrap();
    assert_eq!(fs::metadata(at("new")).unwrap().mode() & 0o777, 0o600);
    assert!(matches!(Writer::create(&at("new"), false), Err(Error::Exists(_))));
    Writer::create(&at("new"), true).unwrap();
    assert_eq!(fs::metadata(at("new")).unwrap().len(), 0, "overwritten from its start");
}

#[test]
fn a_file_for_somebody_belongs_to_them() {
    if !nix::unistd::geteuid().is_root() {
        return; // only root may give files away
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.vrt");
    Writer::create_owned(&path, false, 1234, 5678).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (1234, 5678));
    Writer::create_owned(&path, true, 1234, 5678).unwrap();
    assert!(matches!(Writer::create_owned(&path, true, 4321, 5678), Err(Error::Unsafe { .. })));
}
