//! One block: zstd or raw, in both directions, within the limits of `docs/format.md` section 11.

use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{DParameter, compress_bound, find_frame_compressed_size};

use crate::format::pack::{BlockRow, Codec, MAX_WINDOW_LOG, check_frame};
use crate::objects::index::PackFile;
use crate::{Error, Result};

/// The fastest level: a checkpoint is waited for, and most of a store is read never.
const LEVEL: i32 = 1;
/// Blocks from this size on are sampled before they are compressed whole.
const SAMPLED_FROM: usize = 128 << 10;
const SAMPLES: usize = 4;
const SAMPLE_BYTES: usize = 4 << 10;
/// Buffers that grew larger than this are given back rather than kept.
const KEPT_BYTES: usize = 1 << 20;

/// What zstd must save to be worth the decoding: a 32nd.
const fn worth_it(raw: usize, stored: usize) -> bool {
    stored + raw / 32 < raw
}

/// Compresses blocks, one after the other, with one context.
pub(crate) struct BlockEncoder {
    zstd: Compressor<'static>,
    stored: Vec<u8>,
}

impl BlockEncoder {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            zstd: Compressor::new(LEVEL)?,
            stored: Vec::new(),
        })
    }

    /// The block as it is to be stored.
    pub(crate) fn encode<'b>(&'b mut self, raw: &'b [u8]) -> io::Result<(Codec, &'b [u8])> {
        if raw.len() >= SAMPLED_FROM && !self.sample_shrinks(raw)? {
            return Ok((Codec::Raw, raw));
        }
        let length = self.compress(raw)?;
        if !worth_it(raw.len(), length) {
            return Ok((Codec::Raw, raw));
        }
        Ok((Codec::Zstd, &self.stored))
    }

    fn compress(&mut self, raw: &[u8]) -> io::Result<usize> {
        self.stored.clear();
        let bound = compress_bound(raw.len());
        if self.stored.capacity() > KEPT_BYTES.max(bound) {
            self.stored = Vec::new();
        }
        self.stored.reserve(bound);
        self.zstd.compress_to_buffer(raw, &mut self.stored)
    }

    /// Pieces from all over the block stand for it: media and archives are recognised without compressing them whole.
    fn sample_shrinks(&mut self, raw: &[u8]) -> io::Result<bool> {
        let step = (raw.len() - SAMPLE_BYTES) / (SAMPLES - 1);
        let mut stored = 0;
        for sample in 0..SAMPLES {
            let start = sample * step;
            stored += self.compress(&raw[start..start + SAMPLE_BYTES])?;
        }
        Ok(worth_it(SAMPLES * SAMPLE_BYTES, stored))
    }
}

/// Reads and decodes blocks, one after the other, with one context.
pub(crate) struct BlockDecoder {
    zstd: Decompressor<'static>,
    stored: Vec<u8>,
}

impl BlockDecoder {
    pub(crate) fn new() -> io::Result<Self> {
        let mut zstd = Decompressor::new()?;
        zstd.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
        Ok(Self {
            zstd,
            stored: Vec::new(),
        })
    }

    /// Reads the stored bytes of a block.
    pub(crate) fn read_stored(&mut self, file: &dyn PackFile, row: &BlockRow) -> Result<&[u8]> {
        if self.stored.capacity() > KEPT_BYTES.max(row.stored_length as usize) {
            self.stored = Vec::new();
        }
        self.stored.resize(row.stored_length as usize, 0);
        file.read_exact_at(&mut self.stored, row.offset)?;
        Ok(&self.stored)
    }

    /// Decodes what [`Self::read_stored`] read into a buffer of exactly the row's raw length.
    pub(crate) fn decode(&mut self, row: &BlockRow, raw: &mut [u8]) -> Result<(), &'static str> {
        match row.codec {
            Codec::Raw if self.stored.len() == raw.len() => raw.copy_from_slice(&self.stored),
            Codec::Raw => return Err("a raw block of another length"),
            Codec::Zstd => self.decompress(row, raw)?,
        }
        Ok(())
    }

    /// Decodes stored bytes that are in memory already.
    pub(crate) fn decode_stored(
        &mut self,
        row: &BlockRow,
        stored: &[u8],
        raw: &mut [u8],
    ) -> Result<(), &'static str> {
        self.stored.clear();
        self.stored.extend_from_slice(stored);
        self.decode(row, raw)
    }

    fn decompress(&mut self, row: &BlockRow, raw: &mut [u8]) -> Result<(), &'static str> {
        check_frame(&self.stored, row.raw_length).map_err(|error| error.problem)?;
        let frame = find_frame_compressed_size(&self.stored);
        if frame != Ok(self.stored.len()) {
            return Err("a block that is not exactly one zstd frame");
        }
        match self.zstd.decompress_to_buffer(&self.stored, raw) {
            Ok(length) if length == raw.len() => Ok(()),
            Ok(_) => Err("a block that is shorter than its row says"),
            Err(_) => Err("a block that does not decompress"),
        }
    }

    /// Reads a block and decodes it into a buffer of exactly the row's raw length.
    pub(crate) fn read(
        &mut self,
        file: &dyn PackFile,
        number: u32,
        row: &BlockRow,
        raw: &mut [u8],
    ) -> Result<()> {
        if row.codec == Codec::Raw && raw.len() == row.stored_length as usize {
            return file.read_exact_at(raw, row.offset);
        }
        self.read_stored(file, row)?;
        self.decode(row, raw).map_err(|problem| {
            Error::damaged(file.path(), None, format!("block {number}: {problem}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::testing::{MemoryPack, noise};

    fn round_trip(raw: &[u8]) -> (Codec, usize) {
        let mut encoder = BlockEncoder::new().unwrap();
        let (codec, stored) = encoder.encode(raw).unwrap();
        let row = BlockRow {
            offset: 3,
            stored_length: u32::try_from(stored.len()).unwrap(),
            raw_length: u32::try_from(raw.len()).unwrap(),
            codec,
        };
        let file = MemoryPack::new([b"...", stored, b"after"].concat());
        let mut back = vec![0; raw.len()];
        let mut decoder = BlockDecoder::new().unwrap();
        decoder.read(&file, 0, &row, &mut back).unwrap();
        assert!(back == raw);
        (codec, stored.len())
    }

    #[test]
    fn what_does_not_shrink_is_stored_raw() {
        for length in [
            0,
            1,
            10,
            1000,
            SAMPLED_FROM - 1,
            SAMPLED_FROM,
            SAMPLED_FROM + 1,
            1 << 21,
        ] {
            let (codec, stored) = round_trip(&noise(length as u64, length));
            assert_eq!((codec, stored), (Codec::Raw, length));
        }
        for length in [100, SAMPLED_FROM - 1, SAMPLED_FROM, 3 << 20] {
            let text: Vec<u8> = b"all work and no play "
                .iter()
                .copied()
                .cycle()
                .take(length)
                .collect();
            let (codec, stored) = round_trip(&text);
            assert_eq!(codec, Codec::Zstd);
            assert!(stored < length / 2);
        }
    }

    #[test]
    fn frames_that_hold_something_else_are_refused() {
        let mut decoder = BlockDecoder::new().unwrap();
        let frame = zstd::bulk::compress(&[7; 1000], 1).unwrap();
        let mut decode = |stored: &[u8], raw_length: u32| {
            decoder.stored = stored.to_vec();
            let stored_length = u32::try_from(stored.len()).unwrap();
            let row = BlockRow {
                offset: 0,
                stored_length,
                raw_length,
                codec: Codec::Zstd,
            };
            decoder.decode(&row, &mut vec![0; raw_length as usize])
        };
        assert_eq!(decode(&frame, 1000), Ok(()));
        assert!(decode(&frame, 999).is_err());
        assert!(decode(&frame, 1001).is_err());
        assert!(
            decode(&[frame.as_slice(), &frame].concat(), 2000).is_err(),
            "two frames"
        );
        assert!(
            decode(&[frame.as_slice(), &[0]].concat(), 1000).is_err(),
            "bytes left over"
        );
        for length in 0..frame.len() {
            assert!(decode(&frame[..length], 1000).is_err(), "cut at {length}");
        }
        // A frame that does not say how much it holds.
        let mut sizeless = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        std::io::Write::write_all(&mut sizeless, &[7; 1000]).unwrap();
        let sizeless = sizeless.finish().unwrap();
        assert_eq!(decode(&sizeless, 1000), Ok(()));
        assert!(decode(&sizeless, 999).is_err());
        assert!(decode(&sizeless, 1001).is_err());
    }
}
