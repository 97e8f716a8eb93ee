//! Identifiers: object ids, generation ids, random ids. No I/O; `docs/format.md` sections 1 and 3.

use std::fmt;

/// The BLAKE3 hash (32 bytes) of an object's exact bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 32]);

impl ObjectId {
    /// Length of an id in bytes.
    pub const LEN: usize = 32;

    /// The id of an object with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// An id from its raw bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses exactly 64 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text.as_bytes()).map(Self)
    }
}

impl From<blake3::Hash> for ObjectId {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0[..6])
    }
}

/// 16 random bytes, as 32 lower-case hex digits in text: a store id, a manifest's nonce, the name of a temporary file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce([u8; 16]);

impl Nonce {
    /// A nonce from its raw bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Parses exactly 32 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text.as_bytes()).map(Self)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// The random 128-bit id of a store.
pub type StoreId = Nonce;

/// The name of a generation: sequence and the first 128 bits of its manifest's BLAKE3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GenerationId {
    sequence: u64,
    digest: [u8; 16],
}

impl GenerationId {
    /// Length of the text form in bytes.
    pub const TEXT_LEN: usize = 47;
    /// The highest sequence that ten digits can hold.
    pub const MAX_SEQUENCE: u64 = 9_999_999_999;

    /// The id of the generation whose manifest has these exact bytes and this sequence.
    ///
    /// Returns `None` if the sequence is 0 or above [`Self::MAX_SEQUENCE`].
    pub fn of_manifest(sequence: u64, manifest: &[u8]) -> Option<Self> {
        if sequence == 0 || sequence > Self::MAX_SEQUENCE {
            return None;
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&blake3::hash(manifest).as_bytes()[..16]);
        Some(Self { sequence, digest })
    }

    /// The sequence number.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether `manifest` is what this id was made from.
    pub fn matches(&self, manifest: &[u8]) -> bool {
        blake3::hash(manifest).as_bytes()[..16] == self.digest
    }

    /// Parses the exact text form, nothing else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() != Self::TEXT_LEN || !text.starts_with(b"gen-") || text[14] != b'-' {
            return None;
        }
        let mut sequence = 0u64;
        for &digit in &text[4..14] {
            if !digit.is_ascii_digit() {
                return None;
            }
            sequence = sequence * 10 + u64::from(digit - b'0');
        }
        if sequence == 0 {
            return None;
        }
        Some(Self {
            sequence,
            digest: parse_hex(&text[15..])?,
        })
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gen-{:010}-", self.sequence)?;
        write_hex(f, &self.digest)
    }
}

impl fmt::Debug for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A manifest holds hundreds of ids, and every operation reads one: a digit at a time would show.
fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for piece in bytes.chunks(ObjectId::LEN) {
        let mut text = [[0; 2]; ObjectId::LEN];
        for (pair, byte) in text.iter_mut().zip(piece) {
            *pair = [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ];
        }
        let text = text[..piece.len()].as_flattened();
        f.write_str(std::str::from_utf8(text).expect("BUG: hex digits are ASCII"))?;
    }
    Ok(())
}

/// Lower-case hex of any bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Bytes from an even number of lower-case hex digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

fn parse_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    if text.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

macro_rules! serde_as_text {
    ($type:ty, $parse:expr, $what:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                let parse: fn(&str) -> Option<Self> = $parse;
                parse(&text).ok_or_else(|| serde::de::Error::custom(concat!("not ", $what)))
            }
        }
    };
}
serde_as_text!(ObjectId, ObjectId::parse, "an object id");
serde_as_text!(Nonce, Nonce::parse, "32 lower-case hex digits");
serde_as_text!(
    GenerationId,
    |text| GenerationId::parse(text.as_bytes()),
    "a generation id"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_ids_have_one_text_form() {
        let id = GenerationId::of_manifest(42, b"{}").unwrap();
        let text = id.to_string();
        assert_eq!(text.len(), GenerationId::TEXT_LEN);
        assert_eq!(GenerationId::parse(text.as_bytes()), Some(id));
        assert!(id.matches(b"{}") && !id.matches(b"{ }"));
        for bad in [
            text.to_uppercase(),
            text.replace("gen-0", "gen-+"),
            text.replace("gen-0000000042", "gen-0000000000"),
            format!("{text}0"),
            text[..46].to_owned(),
            text.replace('-', "_"),
        ] {
            assert_eq!(GenerationId::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(GenerationId::of_manifest(0, b""), None);
        assert_eq!(GenerationId::of_manifest(10_000_000_000, b""), None);
    }

    #[test]
    fn hex_is_lower_case_only_and_reversible() {
        assert_eq!(to_hex(&[0, 0xab, 0xff]), "00abff");
        assert_eq!(from_hex("00abff"), Some(vec![0, 0xab, 0xff]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("AB"), None);
        let id = ObjectId::of(b"abc");
        assert_eq!(ObjectId::parse(&id.to_string()), Some(id));
        assert_eq!(ObjectId::parse(&id.to_string().to_uppercase()), None);
    }
}
