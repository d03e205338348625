//! Numbers for frames and stacks: each is written to the trace once, before its first use.

use std::collections::HashMap;

use crate::trace::record::{Frame, Record, Stack};

/// Frames remembered at most. When full, the table starts afresh: a frame seen again is then written again
/// under a new number, which costs a line of trace and is never wrong.
const FRAMES: usize = 100_000;
/// Frame numbers held at most by the stacks remembered (16 MiB), with the same consequence.
const STACK_FRAMES: usize = 4 << 20;

/// Numbers frames and stacks in order of appearance.
#[derive(Debug, Default)]
pub struct Interner {
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Vec<u32>, u32>,
    stack_frames: usize,
    next_frame: u32,
    next_stack: u32,
    new: Vec<Record>,
}

impl Interner {
    /// An empty table, counting from 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of a frame. Its `id` is ignored and set.
    pub fn frame(&mut self, mut frame: Frame) -> u32 {
        frame.id = 0;
        if let Some(&id) = self.frames.get(&frame) {
            return id;
        }
        if self.frames.len() == FRAMES {
            self.frames.clear();
        }
        let id = self.next_frame;
        self.next_frame += 1;
        self.new.push(Record::Frame(Frame { id, ..frame.clone() }));
        self.frames.insert(frame, id);
        id
    }

    /// Number of a stack, given its frames' numbers, outermost first.
    pub fn stack(&mut self, frames: Vec<u32>) -> u32 {
        if let Some(&id) = self.stacks.get(&frames) {
            return id;
        }
        if self.stack_frames + frames.len() > STACK_FRAMES {
            self.stacks.clear();
            self.stack_frames = 0;
        }
        let id = self.next_stack;
        self.next_stack += 1;
        self.new.push(Record::Stack(Stack { id, frames: frames.clone() }));
        self.stack_frames += frames.len();
        self.stacks.insert(frames, id);
        id
    }

    /// Records of what got a number since the last call, in the order in which they must be written.
    pub fn drain(&mut self) -> impl Iterator<Item = Record> + '_ {
        self.new.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(function: &str) -> Frame {
        Frame { function: function.into(), ..Frame::default() }
    }

    #[test]
    fn equal_frames_and_stacks_share_a_number_and_are_written_once() {
        let mut names = Interner::new();
        let (main, malloc) = (names.frame(named("main")), names.frame(named("malloc")));
        let stack = names.stack(vec![main, malloc]);
        assert_eq!(names.frame(Frame { id: 77, ..named("main") }), main, "the id a caller left in is no part of it");
        assert_eq!(names.stack(vec![main, malloc]), stack);
        assert_ne!(names.stack(vec![malloc, main]), stack, "order matters");

        let written: Vec<Record> = names.drain().collect();
        assert_eq!(
            written,
            [
                Record::Frame(Frame { id: 0, ..named("main") }),
                Record::Frame(Frame { id: 1, ..named("malloc") }),
                Record::Stack(Stack { id: 0, frames: vec![0, 1] }),
                Record::Stack(Stack { id: 1, frames: vec![1, 0] }),
            ]
        );
        assert_eq!(names.drain().count(), 0);
    }

    #[test]
    fn a_full_table_starts_afresh_and_numbers_stay_unique() {
        let mut names = Interner::new();
        for n in 0..=u32::try_from(FRAMES).unwrap() {
            assert_eq!(names.frame(Frame { offset: u64::from(n), ..Frame::default() }), n);
        }
        assert!(names.frames.len() <= FRAMES);
        let again = names.frame(Frame { offset: 5, ..Frame::default() });
        assert_eq!(again as usize, FRAMES + 1, "a forgotten frame gets a new number, not another frame's");
        assert_eq!(names.drain().count(), FRAMES + 2);
    }
}
