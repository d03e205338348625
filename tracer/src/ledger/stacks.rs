//! Frames and stacks by their numbers.

use super::Ledger;
use crate::trace::record::{Frame, Stack};

impl Ledger {
    /// Frames and stacks are numbered in order of appearance, so that a number is an index.
    pub(super) fn frame(&mut self, frame: Frame) {
        if frame.id as usize == self.book.frames.len() {
            self.book.frames.push(frame);
        } else {
            self.notice("stack frames are out of order: some stacks are not shown".to_owned());
        }
    }

    pub(super) fn stack(&mut self, stack: Stack) {
        let known = |&frame: &u32| (frame as usize) < self.book.frames.len();
        if stack.id as usize == self.book.stacks.len() && stack.frames.iter().all(known) {
            self.book.stacks.push(stack.frames);
        } else {
            self.notice("stacks are out of order: some are not shown".to_owned());
        }
    }
}
