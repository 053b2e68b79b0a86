//! Interned keys: equal ids mean equal bytes, so grouping by state or observation is exact and needs no hash; and bytes for
//! observations that are no text.

use std::collections::BTreeMap;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

/// Id of an interned key. Ids follow the order of first appearance.
pub type KeyId = u32;

/// A table of byte strings. Its order is the order of insertion; the hasher's randomness cannot leak.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Keys {
    set: IndexSet<Box<[u8]>>,
}

impl Keys {
    /// The id of `bytes`, given on first sight.
    ///
    /// # Panics
    /// With more than `u32::MAX` different keys.
    pub fn id(&mut self, bytes: &[u8]) -> KeyId {
        let index = match self.set.get_index_of(bytes) {
            Some(index) => index,
            None => self.set.insert_full(bytes.into()).0,
        };
        u32::try_from(index).expect("fewer than 2^32 different keys fit in memory")
    }

    /// The bytes of `id`.
    ///
    /// # Panics
    /// If this table did not give out `id`.
    pub fn bytes(&self, id: KeyId) -> &[u8] {
        &self.set[id as usize]
    }

    /// The id of `bytes` if they were seen.
    pub fn find(&self, bytes: &[u8]) -> Option<KeyId> {
        self.set.get_index_of(bytes).and_then(|i| u32::try_from(i).ok())
    }

    /// Number of different keys.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether nothing was interned.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

/// What an observation or a state is made of, where it is no text: its bytes are its key.
///
/// Equal values have equal bytes, different ones different bytes. The type is part of a value (`1`, `1.0` and `true` are
/// three), and so is the nesting of lists (2×3 is not 3×2); the order in which a map was filled is not. NaN is NaN, and −0
/// is 0. Texts are compared as they are: Unicode is not normalised.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyPart {
    /// Nothing.
    Null,
    /// A flag.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<KeyPart>),
    /// Values by name.
    Map(BTreeMap<String, KeyPart>),
}

impl KeyPart {
    /// Its bytes: a letter for the type, then the value, after its length where it has one.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.push(b'n'),
            Self::Bool(x) => out.extend([b'b', u8::from(*x)]),
            Self::Int(x) => {
                out.push(b'i');
                out.extend(x.to_le_bytes());
            }
            Self::Float(x) => {
                out.push(b'f');
                let one_of_each = if x.is_nan() { f64::NAN } else { *x + 0.0 };
                out.extend(one_of_each.to_le_bytes());
            }
            Self::Text(x) => {
                out.push(b't');
                write_text(x, out);
            }
            Self::List(items) => {
                out.push(b'l');
                out.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| item.write(out));
            }
            Self::Map(items) => {
                out.push(b'm');
                out.extend((items.len() as u64).to_le_bytes());
                for (name, item) in items {
                    write_text(name, out);
                    item.write(out);
                }
            }
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(items: impl IntoIterator<Item = KeyPart>) -> KeyPart {
        KeyPart::List(items.into_iter().collect())
    }
    fn matrix(rows: &[&[i64]]) -> KeyPart {
        list(rows.iter().map(|row| list(row.iter().map(|x| KeyPart::Int(*x)))))
    }
    fn text(x: &str) -> KeyPart {
        KeyPart::Text(x.into())
    }

    #[test]
    fn types_and_shapes_are_told_apart() {
        let map = |items: &[(&str, i64)]| KeyPart::Map(items.iter().map(|(k, x)| (k.to_string(), KeyPart::Int(*x))).collect());
        let all = [
            KeyPart::Null,
            KeyPart::Bool(false),
            KeyPart::Bool(true),
            KeyPart::Int(0),
            KeyPart::Int(1),
            KeyPart::Float(0.0),
            KeyPart::Float(1.0),
            KeyPart::Float(f64::NAN),
            text(""),
            text("1"),
            text("null"),
            text("\u{e9}"),
            text("e\u{301}"),
            list([]),
            list([list([])]),
            list([text("ab"), text("c")]),
            list([text("a"), text("bc")]),
            matrix(&[&[1, 2, 3, 4, 5, 6]]),
            matrix(&[&[1, 2, 3], &[4, 5, 6]]),
            matrix(&[&[1, 2], &[3, 4], &[5, 6]]),
            map(&[]),
            map(&[("a", 2), ("b", 1)]),
            map(&[("a", 1), ("b", 2)]),
        ];
        let different: std::collections::BTreeSet<Vec<u8>> = all.iter().map(KeyPart::bytes).collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(map(&[("b", 1), ("a", 2)]).bytes(), map(&[("a", 2), ("b", 1)]).bytes());
    }

    #[test]
    fn every_nan_is_one_and_so_is_zero() {
        let bytes = |x: f64| KeyPart::Float(x).bytes();
        assert_eq!(bytes(f64::NAN), bytes(f64::from_bits(f64::NAN.to_bits() | 1)));
        assert_eq!(bytes(-f64::NAN), bytes(f64::NAN));
        assert_eq!(bytes(-0.0), bytes(0.0));
    }

    /// Small values without NaN, so that `==` means equal.
    fn parts() -> impl Strategy<Value = KeyPart> {
        let leaf = prop_oneof![
            Just(KeyPart::Null),
            any::<bool>().prop_map(KeyPart::Bool),
            (-1i64..2).prop_map(KeyPart::Int),
            (-1i8..2).prop_map(|x| KeyPart::Float(f64::from(x))),
            "[nbitlm]{0,2}".prop_map(KeyPart::Text),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(KeyPart::List),
                prop::collection::btree_map("[ab]{0,1}", inner, 0..3).prop_map(KeyPart::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn equal_bytes_mean_equal_values(a in parts(), b in parts()) {
            prop_assert_eq!(a.bytes() == b.bytes(), a == b);
        }

        #[test]
        fn equal_ids_mean_equal_bytes(keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..40)) {
            let mut table = Keys::default();
            let ids: Vec<_> = keys.iter().map(|k| table.id(k)).collect();
            for (i, a) in keys.iter().enumerate() {
                prop_assert_eq!(table.bytes(ids[i]), &a[..]);
                for (j, b) in keys.iter().enumerate() {
                    prop_assert_eq!(ids[i] == ids[j], a == b);
                }
            }
        }
    }
}
