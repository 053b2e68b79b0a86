//! Interned keys: equal ids mean equal bytes, so grouping by state or observation is exact and needs no hash.

use indexmap::IndexSet;

/// Id of an interned key. Ids follow the order of first appearance.
pub type KeyId = u32;

/// A table of byte strings. Its order is the order of insertion; the hasher's randomness cannot leak.
#[derive(Clone, Debug, Default)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
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
