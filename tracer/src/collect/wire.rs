//! From ring-buffer bytes to typed events.

use bytemuck::Pod;
use tracer_ebpf as wire;

/// One record of the ring buffer.
pub(super) enum Event<'a> {
    /// A probed call returned.
    Call(wire::Call),
    /// A driver ioctl returned.
    Ioctl(Box<wire::Ioctl>),
    /// User registers and the stack slice behind them.
    Stack(wire::Stack, &'a [u8]),
    /// The Python frames of a thread.
    Python(Box<wire::PythonStack>),
    /// A Python code object.
    Code(Box<wire::PythonCode>),
    /// A tracked process forked.
    Fork(wire::Process),
    /// A process executed a new image.
    Exec(wire::Process),
    /// The last thread of a process began to exit.
    Exit(wire::Process),
    /// The dynamic linker loaded something that user space must look at.
    Library(Box<wire::LibraryLoaded>),
    /// The dynamic linker of a tracked process mapped an object; its path.
    Object(wire::Object, &'a [u8]),
    /// A process writes to its standard output or error; the bytes.
    Output(wire::Output, &'a [u8]),
    /// A driver file was closed for good.
    Release(wire::FileReleased),
    /// `PyTorch`'s allocator handed a block out or took one back.
    Block(wire::Block),
}

impl<'a> Event<'a> {
    /// Reads a record; `None` when it is too short or of no known kind (the object and this program come from one build,
    /// so that is a bug, and counted).
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        Some(match pod::<wire::Header>(bytes)?.kind {
            wire::KIND_CALL => Self::Call(pod(bytes)?),
            wire::KIND_IOCTL => Self::Ioctl(Box::new(pod(bytes)?)),
            wire::KIND_STACK => {
                let stack: wire::Stack = pod(bytes)?;
                Self::Stack(stack, bytes.get(size_of::<wire::Stack>()..)?.get(..stack.len as usize)?)
            }
            wire::KIND_PYTHON => Self::Python(Box::new(pod(bytes)?)),
            wire::KIND_CODE => Self::Code(Box::new(pod(bytes)?)),
            wire::KIND_FORK => Self::Fork(pod(bytes)?),
            wire::KIND_EXEC => Self::Exec(pod(bytes)?),
            wire::KIND_EXIT => Self::Exit(pod(bytes)?),
            wire::KIND_LIBRARY => Self::Library(Box::new(pod(bytes)?)),
            wire::KIND_OBJECT => {
                let object: wire::Object = pod(bytes)?;
                Self::Object(object, bytes.get(size_of::<wire::Object>()..)?.get(..object.name_len as usize)?)
            }
            wire::KIND_OUTPUT => {
                let output: wire::Output = pod(bytes)?;
                Self::Output(output, bytes.get(size_of::<wire::Output>()..)?.get(..output.len as usize)?)
            }
            wire::KIND_RELEASE => Self::Release(pod(bytes)?),
            wire::KIND_BLOCK => Self::Block(pod(bytes)?),
            _ => return None,
        })
    }
}

fn pod<T: Pod>(bytes: &[u8]) -> Option<T> {
    bytes.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_unknown() {
        assert!(Event::read(&[]).is_none());
        let header = wire::Header { kind: 99, ..wire::Header::default() };
        assert!(Event::read(bytemuck::bytes_of(&header)).is_none());
        let header = wire::Header { kind: wire::KIND_CALL, ..wire::Header::default() };
        assert!(Event::read(bytemuck::bytes_of(&header)).is_none(), "a call without its body");
    }

    #[test]
    fn stack_length_is_checked() {
        let mut stack = wire::Stack { len: 4, ..bytemuck::Zeroable::zeroed() };
        stack.header.kind = wire::KIND_STACK;
        let mut bytes = bytemuck::bytes_of(&stack).to_vec();
        assert!(Event::read(&bytes).is_none());
        bytes.extend([1, 2, 3, 4, 5]);
        assert!(matches!(Event::read(&bytes), Some(Event::Stack(_, [1, 2, 3, 4]))));
    }
}
