//! pprof's profile: gzip-compressed protobuf,
//! <https://github.com/google/pprof/blob/main/proto/profile.proto> (field numbers are from there).
//!
//! A sample is a cell of the report (process, device, phase, role, kind, owner, call, stack) with four values: objects and
//! bytes, ever allocated and live at the moment asked for, in the order of Go's heap profiles.

use std::collections::HashMap;
use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use prost::Message;

use super::super::{cells, frames};
use super::{Error, Job, Sink};
use crate::ledger::Allocation;
use crate::lifecycle::Axis;
use crate::trace::record;

/// What divides memory into samples; the labels of [`TAGS`] are names of these cells.
const BY: [Axis; 8] =
    [Axis::Process, Axis::Device, Axis::Phase, Axis::Role, Axis::Kind, Axis::Owner, Axis::Api, Axis::Stack];

/// Labels of a sample.
const TAGS: [(&str, Axis); 6] = [
    ("rank", Axis::Rank),
    ("role", Axis::Role),
    ("phase", Axis::Phase),
    ("owner", Axis::Owner),
    ("kind", Axis::Kind),
    ("gpu", Axis::Device),
];

/// Types of a sample's values, with their units.
const VALUES: [(&str, &str); 4] =
    [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];

#[derive(Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, Copy, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Message)]
struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
    #[prost(int64, tag = "3")]
    number: i64,
}

#[derive(Clone, Copy, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    /// pprof looks for symbols of its own otherwise.
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Writes the profile.
pub(super) fn write(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let moments = job.moments()?;
    let (axes, book) = (job.axes, job.axes.book());
    let first = super::first_rows(axes, &BY);
    let mut build = Builder::new(&book.libraries);
    for cell in cells::divide(axes, &BY, &moments).cells {
        let Some(row) = first.get(&cell.key) else { continue };
        let sum = cell.sum;
        let mut label = Vec::with_capacity(TAGS.len() + 1);
        for (name, axis) in TAGS {
            let text = axes.label(axis, axes.cell(axis, row));
            label.push(Label { key: build.text(name), text: build.text(&text), number: 0 });
        }
        label.push(Label { key: build.text("pid"), text: 0, number: i64::from(book.processes[row.process].pid) });
        let value = [sum.count, sum.allocated, sum.live_count, sum.live].map(int).to_vec();
        let location_id = build.stack(job, row);
        build.profile.sample.push(Sample { location_id, value, label });
    }
    let moment = format!("vramtrace: inuse is live at {}", job.at);
    let comments = [moment, book.header.command.join(" ")];
    let mut profile = build.finish();
    profile.time_nanos = int(book.header.unix_ns);
    profile.duration_nanos = int(book.end.saturating_sub(book.header.t));
    for comment in comments {
        profile.comment.push(profile.string_table.len() as i64);
        profile.string_table.push(comment);
    }
    let mut gzip = GzEncoder::new(to, Compression::default());
    gzip.write_all(&profile.encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

/// Numbers of the format are signed; no trace comes near the end, unless it is damaged.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What samples refer to, each thing once.
struct Builder<'b> {
    profile: Profile,
    texts: HashMap<String, i64>,
    functions: HashMap<(i64, i64), u64>,
    mappings: HashMap<&'b str, u64>,
    locations: HashMap<(u64, u64, u64, i64), u64>,
    libraries: &'b [record::Library],
}

impl<'b> Builder<'b> {
    fn new(libraries: &'b [record::Library]) -> Self {
        let mut build = Self {
            profile: Profile::default(),
            texts: HashMap::new(),
            functions: HashMap::new(),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            libraries,
        };
        // The format wants the empty string first.
        build.text("");
        for (name, unit) in VALUES {
            let (kind, unit) = (build.text(name), build.text(unit));
            build.profile.sample_type.push(ValueType { kind, unit });
        }
        build.profile.period_type = Some(ValueType { kind: build.text("space"), unit: build.text("bytes") });
        build.profile.period = 1;
        build.profile.default_sample_type = build.text("inuse_space");
        build
    }

    fn finish(self) -> Profile {
        self.profile
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.texts.len() as i64;
        self.texts.insert(text.to_owned(), number);
        self.profile.string_table.push(text.to_owned());
        number
    }

    /// The boxes that pictures show, innermost first.
    fn stack(&mut self, job: &Job<'b>, row: &'b Allocation) -> Vec<u64> {
        let steps = frames::way(job.axes.book(), row);
        let mut locations: Vec<u64> = steps.iter().map(|step| self.location(step)).collect();
        locations.reverse();
        locations
    }

    fn location(&mut self, step: &frames::Step<'b>) -> u64 {
        let (mapping, address) = match step.frame {
            Some(frame) if !frame.module.is_empty() => (self.mapping(&frame.module), frame.offset),
            _ => (0, 0),
        };
        let file = step.frame.and_then(|frame| frame.file.as_deref()).unwrap_or_default();
        let line = step.frame.and_then(|frame| frame.line).map_or(0, i64::from);
        let function = self.function(&step.name, file);
        // A box that stands for a run of frames has the address of the first.
        let address = if step.name.starts_with('[') { 0 } else { address };
        let locations = &mut self.profile.location;
        *self.locations.entry((mapping, address, function, line)).or_insert_with(|| {
            let id = locations.len() as u64 + 1;
            locations.push(Location {
                id,
                mapping_id: mapping,
                address,
                line: vec![Line { function_id: function, line }],
            });
            id
        })
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        let (name, filename) = (self.text(name), self.text(file));
        let functions = &mut self.profile.function;
        *self.functions.entry((name, filename)).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            functions.push(Function { id, name, system_name: name, filename });
            id
        })
    }

    fn mapping(&mut self, module: &'b str) -> u64 {
        if let Some(id) = self.mappings.get(module) {
            return *id;
        }
        let build_id = self.libraries.iter().find(|library| library.path == module).and_then(|l| l.build_id.as_deref());
        let (filename, build_id) = (self.text(module), self.text(build_id.unwrap_or_default()));
        let id = self.profile.mapping.len() as u64 + 1;
        let (has_functions, has_filenames, has_line_numbers) = (true, true, true);
        self.profile.mapping.push(Mapping { id, filename, build_id, has_functions, has_filenames, has_line_numbers });
        self.mappings.insert(module, id);
        id
    }
}
