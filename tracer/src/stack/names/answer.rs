//! What the child answers: a message of strings that each end in NUL, three a function.

use std::iter;

use crate::text::cut;

/// Bytes of an answer at most.
pub(super) const LARGEST: usize = 128 * 1024;
/// Bytes of a function's name or a file's path at most; the longest names of C++ templates are cut.
const TEXT: usize = 2048;
/// Functions of one address: itself and what was inlined there.
const FUNCTIONS: usize = 30;

/// A function, and the line in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::stack) struct Named {
    pub(in crate::stack) name: String,
    pub(in crate::stack) file: Option<String>,
    pub(in crate::stack) line: Option<u32>,
}

/// An empty answer says so by one NUL: a message of no bytes would be an end.
pub(super) fn encode<'a>(found: impl IntoIterator<Item = &'a Named>) -> Vec<u8> {
    let mut bytes = vec![0];
    for Named { name, file, line } in found.into_iter().take(FUNCTIONS) {
        let line = line.map(|line| line.to_string()).unwrap_or_default();
        for text in [cut(name, TEXT).as_str(), cut(file.as_deref().unwrap_or_default(), TEXT).as_str(), &line] {
            bytes.extend(text.bytes().filter(|&byte| byte != 0).chain(iter::once(0)));
        }
    }
    bytes
}

/// Takes whatever comes.
pub(super) fn decode(bytes: &[u8]) -> Vec<Named> {
    let texts: Vec<String> =
        bytes.split(|&byte| byte == 0).skip(1).map(|text| cut(&String::from_utf8_lossy(text), TEXT)).collect();
    let functions = texts.chunks_exact(3).take(FUNCTIONS);
    functions
        .map(|parts| Named {
            name: parts[0].clone(),
            file: Some(parts[1].clone()).filter(|file| !file.is_empty()),
            line: parts[2].parse().ok(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named() -> impl Strategy<Value = Named> {
        ("[^\0]{0,40}", prop::option::of("[^\0]{1,40}"), any::<Option<u32>>()).prop_map(|(name, file, line)| Named {
            name,
            file,
            line,
        })
    }

    #[test]
    fn huge_names_are_cut() {
        let huge = Named { name: "é".repeat(1 << 20), file: Some("f\0".repeat(1 << 20)), line: Some(u32::MAX) };
        let bytes = encode(&vec![huge; 1000]);
        assert!(bytes.len() <= LARGEST, "{}", bytes.len());
        let found = decode(&bytes);
        assert_eq!(found.len(), FUNCTIONS);
        assert!(found.iter().all(|named| named.name.len() <= TEXT + 3 && named.line == Some(u32::MAX)));
    }

    proptest! {
        #[test]
        fn answers_come_back(found in prop::collection::vec(named(), 0..FUNCTIONS)) {
            prop_assert_eq!(decode(&encode(&found)), found);
        }

        #[test]
        fn any_bytes_are_an_answer(bytes: Vec<u8>) {
            prop_assert!(decode(&bytes).len() <= FUNCTIONS);
        }
    }
}
