//! speedscope's file format: <https://www.speedscope.app/file-format-schema.json>, a sampled profile for each process.
//!
//! Weights are bytes. Sums are exact up to 2^53 in the viewer, whose numbers are doubles; the file holds them exact.

use std::collections::HashMap;

use serde::Serialize;

use super::super::cells;
use super::super::folded::Value;
use super::super::frames::{self, Step};
use super::{Error, Job, Sink};
use crate::lifecycle::Axis;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: u32,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Default, Serialize)]
struct Shared {
    frames: Vec<Frame>,
}

#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes the profiles.
pub(super) fn write(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let (axes, moments) = (job.axes, job.moments()?);
    let book = axes.book();
    // A profile is a process: its labels need not stand before each stack.
    let roots: Vec<Axis> = job.by.iter().copied().filter(|axis| !matches!(axis, Axis::Rank | Axis::Process)).collect();
    let by: Vec<Axis> =
        [Axis::Process].into_iter().chain(roots.iter().copied()).chain([Axis::Stack, Axis::Api, Axis::Kind]).collect();
    let first = super::first_rows(axes, &by);
    let mut frames = Frames::default();
    let mut profiles: Vec<Profile> = (0..book.processes.len()).map(|process| profile(job, process)).collect();
    for cell in cells::divide(axes, &by, &moments).cells {
        let weight = if job.value == Value::Allocated { cell.sum.allocated } else { cell.sum.live };
        if let (Some(row), 1..) = (first.get(&cell.key), weight) {
            let labels = roots.iter().map(|axis| axes.label(*axis, axes.cell(*axis, row)).into_owned());
            let mut sample: Vec<u32> =
                labels.map(|name| frames.number(Frame { name, file: None, line: None })).collect();
            sample.extend(frames::way(book, row).into_iter().map(|step| frames.number(step.into())));
            let profile = &mut profiles[row.process];
            profile.samples.push(sample);
            profile.weights.push(weight);
            profile.end_value = profile.end_value.saturating_add(weight);
        }
    }
    // A file needs a profile, if an empty one.
    let keep = |profile: &Profile| !profile.samples.is_empty();
    let any = profiles.iter().any(keep);
    profiles.retain(|profile| keep(profile) || !any);
    if !any {
        profiles.truncate(1);
    }
    let file = File {
        schema: SCHEMA,
        exporter: concat!("vramtrace@", env!("CARGO_PKG_VERSION")).to_owned(),
        name: title(job),
        active_profile_index: 0,
        shared: Shared { frames: frames.list },
        profiles,
    };
    serde_json::to_writer(&mut *to, &file)?;
    Ok(to.write_all(b"\n")?)
}

fn profile(job: &Job<'_>, process: usize) -> Profile {
    let name = super::process_name(job.axes, process);
    let (samples, weights) = (Vec::new(), Vec::new());
    Profile { kind: "sampled", name, unit: "bytes", start_value: 0, end_value: 0, samples, weights }
}

fn title(job: &Job<'_>) -> String {
    let what = match job.value {
        Value::Live => format!("live at {}", job.at),
        Value::Peak => "live at each process's peak".to_owned(),
        Value::Allocated => "ever allocated".to_owned(),
    };
    let file = job.trace.file_name().unwrap_or_default().to_string_lossy();
    format!("{file}: GPU memory {what}")
}

#[derive(Default)]
struct Frames {
    numbers: HashMap<Frame, u32>,
    list: Vec<Frame>,
}

impl Frames {
    fn number(&mut self, frame: Frame) -> u32 {
        let list = &mut self.list;
        *self.numbers.entry(frame).or_insert_with_key(|frame| {
            list.push(frame.clone());
            list.len() as u32 - 1
        })
    }
}

impl From<Step<'_>> for Frame {
    fn from(step: Step<'_>) -> Self {
        let file = step.frame.and_then(|frame| {
            let module = Some(&frame.module).filter(|module| !module.is_empty());
            frame.file.as_ref().or(module).cloned()
        });
        let line = step.frame.and_then(|frame| frame.file.as_ref().and(frame.line));
        Self { name: step.name.into_owned(), file, line }
    }
}
