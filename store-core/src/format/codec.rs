//! The primitives of `docs/format.md` section 1: a cursor over untrusted bytes, and its counterpart that writes.

#![allow(
    clippy::missing_errors_doc,
    reason = "every reader fails alike: the bytes end too early or break the rule that its line names"
)]

use crate::clock::Time;
use crate::id::{Nonce, ObjectId};

/// Why bytes could not be decoded. Small on purpose: the caller knows the object and the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub struct DecodeError {
    /// What is wrong.
    pub problem: &'static str,
    /// Where, in bytes from the beginning.
    pub at: usize,
}

/// What decoders return.
pub type Decoded<T> = Result<T, DecodeError>;

/// Reads values from untrusted bytes, never past their end, never allocating more than they hold.
#[derive(Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// An error at this place.
    pub const fn error<T>(&self, problem: &'static str) -> Decoded<T> {
        Err(DecodeError {
            problem,
            at: self.at,
        })
    }

    /// How many bytes were read.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub const fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        match self.bytes[self.at..].get(..count) {
            Some(bytes) => {
                self.at += count;
                Ok(bytes)
            }
            None => self.error("ends too early"),
        }
    }

    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Exactly these bytes.
    pub fn tag(&mut self, tag: &[u8], problem: &'static str) -> Decoded<()> {
        if self.bytes[self.at..].starts_with(tag) {
            self.at += tag.len();
            return Ok(());
        }
        self.error(problem)
    }

    /// One byte.
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian u16.
    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A little-endian u32.
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian u64.
    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A little-endian i64.
    pub fn i64(&mut self) -> Decoded<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A 32-byte object id.
    pub fn id(&mut self) -> Decoded<ObjectId> {
        Ok(ObjectId::from_bytes(self.array()?))
    }

    /// A 16-byte random id.
    pub fn nonce(&mut self) -> Decoded<Nonce> {
        Ok(Nonce::from_bytes(self.array()?))
    }

    /// A time; its nanoseconds are below 1,000,000,000.
    pub fn time(&mut self) -> Decoded<Time> {
        let seconds = self.i64()?;
        match Time::new(seconds, self.u32()?) {
            Some(time) => Ok(time),
            None => self.error("nanoseconds out of range"),
        }
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.error("a flag is neither 0 nor 1"),
        }
    }

    /// A byte string with a 16-bit length of at most `max`.
    pub fn bytes16(&mut self, max: usize) -> Decoded<&'a [u8]> {
        let length = usize::from(self.u16()?);
        if length > max {
            return self.error("a byte string is too long");
        }
        self.take(length)
    }

    /// A byte string with a 32-bit length of at most `max`.
    pub fn bytes32(&mut self, max: usize) -> Decoded<&'a [u8]> {
        let length = self.u32()? as usize;
        if length > max {
            return self.error("a byte string is too long");
        }
        self.take(length)
    }

    /// A list's count, believed only as far as the bytes left can hold: each element takes `min_size` bytes or more.
    pub fn count(&mut self, min_size: usize, max: usize) -> Decoded<usize> {
        let count = self.u32()? as usize;
        if count > max || count.saturating_mul(min_size.max(1)) > self.remaining() {
            return self.error("a count is larger than what follows");
        }
        Ok(count)
    }

    /// An optional value.
    pub fn opt<T>(&mut self, read: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.flag()? {
            read(self).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Nothing may be left over.
    pub fn finish(&self) -> Decoded<()> {
        if self.remaining() == 0 {
            Ok(())
        } else {
            self.error("bytes left over")
        }
    }
}

/// Writes the values that [`Cursor`] reads.
#[derive(Debug, Default)]
pub struct Encoder(Vec<u8>);

impl Encoder {
    /// An empty encoder.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// An encoder that begins with a tag.
    pub fn tagged(tag: &[u8]) -> Self {
        Self(tag.to_vec())
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// Forgets what was written but keeps the memory, so that one encoder serves many objects.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// How much was written, in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// A little-endian u16.
    pub fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    /// A little-endian u32.
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    /// A little-endian u64.
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// A little-endian i64.
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_le_bytes());
    }

    /// An object id.
    pub fn id(&mut self, id: &ObjectId) {
        self.raw(id.as_bytes());
    }

    /// A 16-byte random id.
    pub fn nonce(&mut self, nonce: &Nonce) {
        self.raw(nonce.as_bytes());
    }

    /// A time.
    pub fn time(&mut self, time: Time) {
        self.i64(time.seconds);
        self.u32(time.nanoseconds);
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// A byte string with a 16-bit length.
    ///
    /// # Panics
    /// If it is longer than 65,535 bytes: callers keep the limits of the format.
    pub fn bytes16(&mut self, bytes: &[u8]) {
        self.u16(u16::try_from(bytes.len()).expect("BUG: byte string over the format's limit"));
        self.raw(bytes);
    }

    /// A byte string with a 32-bit length.
    ///
    /// # Panics
    /// If it is 4 GiB or longer.
    pub fn bytes32(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }

    /// A list's count.
    ///
    /// # Panics
    /// If it does not fit 32 bits.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("BUG: count over the format's limit"));
    }

    /// An optional value.
    pub fn opt<T>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}
