//! Interprets input bytes as choices. Once all bytes are used, every choice is zero or empty.

pub(crate) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                self.bytes = rest;
                *byte
            }
            None => 0,
        }
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Reads a big-endian number of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |value, _| value << 8 | u64::from(self.byte()))
    }

    /// Reads any number. Numbers below 244 take one byte, all others at most nine. Numbers near
    /// 2^32, 2^40 and 2^64 are likely.
    pub(crate) fn any(&mut self) -> u64 {
        match self.byte() {
            length @ 0..=8 => self.number(length.into()),
            9 => u64::MAX - u64::from(self.byte()),
            10 => u64::from(u32::MAX) + u64::from(self.byte()) - 128,
            11 => (1 << 40) + u64::from(self.byte()) - 128,
            small => u64::from(small - 12),
        }
    }

    pub(crate) fn any_u32(&mut self) -> u32 {
        self.any() as u32
    }

    /// Reads a number that is usually below `end`, and rarely any number. `end` must not be zero.
    pub(crate) fn mostly_below(&mut self, end: u32) -> u32 {
        match self.byte() {
            255 => self.any_u32(),
            high => (u32::from(high) << 8 | u32::from(self.byte())) % end,
        }
    }

    /// Reads a byte with a length, and as many of the remaining bytes (all, if there are fewer).
    pub(crate) fn slice(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.bytes.len());
        let (slice, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        slice
    }
}
