//! Values off arbitrary bytes.

/// Takes values from the front; zeros once there is nothing left.
#[derive(Clone, Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub(crate) const fn rest(self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let bytes = self.bytes(N);
        std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(0))
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One of some values.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.u8()) % of.len()]
    }

    /// A number of bytes: mostly one that there could be.
    pub(crate) fn size(&mut self) -> u64 {
        match self.u8() {
            0 => self.u64(),
            1 => u64::MAX,
            2 => i64::MAX as u64,
            3 => 0,
            n => u64::from(n) << 21,
        }
    }
}
