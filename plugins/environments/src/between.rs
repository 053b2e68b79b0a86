//! A whole number with a range, so that a value out of range is refused where it is read, with its key.

use std::ops::Deref;

use ascribe_core::range::Count;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

/// A whole number in `MIN..=MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Between<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Between<MIN, MAX> {
    /// The number as an index or a length.
    pub fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}
impl<const MIN: u64, const MAX: u64> TryFrom<u64> for Between<MIN, MAX> {
    type Error = String;
    fn try_from(x: u64) -> Result<Self, String> {
        if (MIN..=MAX).contains(&x) { Ok(Self(x)) } else { Err(format!("must be in {MIN}..={MAX}, got {x}")) }
    }
}
impl<const MIN: u64, const MAX: u64> Deref for Between<MIN, MAX> {
    type Target = u64;
    fn deref(&self) -> &u64 {
        &self.0
    }
}
impl<const MIN: u64, const MAX: u64> Serialize for Between<MIN, MAX> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}
impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Between<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::try_from(Count::deserialize(d)?.0).map_err(D::Error::custom)
    }
}
impl<const MIN: u64, const MAX: u64> JsonSchema for Between<MIN, MAX> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Between{MIN}And{MAX}").into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_belong_to_the_range() {
        assert_eq!(Between::<2, 4>::try_from(2).map(Between::get), Ok(2));
        assert_eq!(Between::<2, 4>::try_from(4).map(Between::get), Ok(4));
        assert_eq!(Between::<2, 4>::try_from(5), Err("must be in 2..=4, got 5".into()));
        assert!(Between::<2, 4>::try_from(1).is_err());
        assert_eq!(serde_json::from_str::<Between<1, 4000>>("2e3").map(Between::get).map_err(|e| e.to_string()), Ok(2000));
    }
}
