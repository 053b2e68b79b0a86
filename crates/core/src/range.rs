//! Numbers whose range is part of their type, so that a value out of range is refused where it is read, with its key.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

macro_rules! float_range {
    ($(#[$doc:meta])* $name:ident, $accepts:expr, $says:literal, $schema:tt) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
        pub struct $name(f64);

        impl TryFrom<f64> for $name {
            type Error = String;
            fn try_from(x: f64) -> Result<Self, String> {
                let accepts: fn(f64) -> bool = $accepts;
                if accepts(x) { Ok(Self(x)) } else { Err(format!(concat!("must be ", $says, ", got {}"), shown(x))) }
            }
        }
        impl Deref for $name {
            type Target = f64;
            fn deref(&self) -> &f64 { &self.0 }
        }
        impl From<$name> for f64 {
            fn from(x: $name) -> f64 { x.0 }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.serialize_f64(self.0) }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::try_from(f64::deserialize(d)?).map_err(de::Error::custom)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> { stringify!($name).into() }
            fn inline_schema() -> bool { true }
            fn json_schema(_: &mut SchemaGenerator) -> Schema { json_schema!($schema) }
        }
    };
}

/// A number as people write it: the digits of a large one say nothing.
fn shown(x: f64) -> String {
    if x.abs() < 1e16 { x.to_string() } else { format!("{x:e}") }
}

/// Largest number: results are `f32`, in which a larger one is infinite.
const MOST: f64 = f32::MAX as f64;

float_range!(
    /// A number in 0..=1.
    Unit, |x| (0.0..=1.0).contains(&x), "in 0..=1", { "type": "number", "minimum": 0, "maximum": 1 }
);
float_range!(
    /// A number above 0 and at most 1.
    Fraction, |x| x > 0.0 && x <= 1.0, "above 0 and at most 1",
    { "type": "number", "exclusiveMinimum": 0, "maximum": 1 }
);
float_range!(
    /// A positive number that is not too large for an `f32`.
    Positive, |x| x > 0.0 && x <= MOST, "positive and at most 3.4e38", { "type": "number", "exclusiveMinimum": 0 }
);
float_range!(
    /// A length of time in seconds, above 0 and at most 1e9.
    Seconds, |x| x > 0.0 && x <= 1e9, "seconds, above 0 and at most 1e9", { "type": "number", "exclusiveMinimum": 0, "maximum": 1e9 }
);
impl Seconds {
    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}
float_range!(
    /// A number that an `f32` can hold and that is not negative.
    NonNegative, |x| (0.0..=MOST).contains(&x), "0 or more, and at most 3.4e38", { "type": "number", "minimum": 0 }
);
float_range!(
    /// A number that an `f32` can hold.
    Finite, |x| x.abs() <= MOST, "finite, and of a magnitude of at most 3.4e38", { "type": "number" }
);

/// A whole number that is at least `MIN`, written like a [`Count`]. What costs work or memory in proportion to it is
/// [`Between`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AtLeast<const MIN: u64>(u64);

impl<const MIN: u64> AtLeast<MIN> {
    /// The number as an index or a length.
    pub fn get(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}
impl<const MIN: u64> TryFrom<u64> for AtLeast<MIN> {
    type Error = String;
    fn try_from(x: u64) -> Result<Self, String> {
        if x >= MIN { Ok(Self(x)) } else { Err(format!("must be at least {MIN}, got {x}")) }
    }
}
impl<const MIN: u64> Deref for AtLeast<MIN> {
    type Target = u64;
    fn deref(&self) -> &u64 {
        &self.0
    }
}
impl<const MIN: u64> Serialize for AtLeast<MIN> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}
impl<'de, const MIN: u64> Deserialize<'de> for AtLeast<MIN> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::try_from(Count::deserialize(d)?.0).map_err(de::Error::custom)
    }
}
impl<const MIN: u64> JsonSchema for AtLeast<MIN> {
    fn schema_name() -> Cow<'static, str> {
        format!("AtLeast{MIN}").into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "number", "string"], "minimum": MIN })
    }
}

/// A whole number in `MIN..=MAX`, written like a [`Count`].
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
        Self::try_from(Count::deserialize(d)?.0).map_err(de::Error::custom)
    }
}
impl<const MIN: u64, const MAX: u64> JsonSchema for Between<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Between{MIN}And{MAX}").into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "number", "string"], "minimum": MIN, "maximum": MAX })
    }
}

/// A count: `20_000_000`, `2e7` or `"20M"` (k, M, G are 1e3, 1e6, 1e9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}
impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(CountVisitor)
    }
}
impl JsonSchema for Count {
    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "number", "string"], "minimum": 0 })
    }
}

struct CountVisitor;

impl Visitor<'_> for CountVisitor {
    type Value = Count;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count such as 20000000, 2e7 or \"20M\"")
    }
    fn visit_i64<E: de::Error>(self, x: i64) -> Result<Count, E> {
        u64::try_from(x).map(Count).map_err(|_| E::custom(format!("must not be negative, got {x}")))
    }
    fn visit_u64<E: de::Error>(self, x: u64) -> Result<Count, E> {
        Ok(Count(x))
    }
    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Count, E> {
        // Above 2^53 a float no longer names one whole number.
        if x >= 0.0 && x.fract() == 0.0 && x <= 9_007_199_254_740_992.0 {
            Ok(Count(x as u64))
        } else {
            Err(E::custom(format!("must be a whole number that is not negative, got {x}")))
        }
    }
    fn visit_str<E: de::Error>(self, s: &str) -> Result<Count, E> {
        let bad = || E::invalid_value(de::Unexpected::Str(s), &self);
        let (digits, factor) = match s.char_indices().last() {
            Some((i, 'k')) => (&s[..i], 1e3),
            Some((i, 'M')) => (&s[..i], 1e6),
            Some((i, 'G')) => (&s[..i], 1e9),
            _ => (s, 1.0),
        };
        let number: f64 = digits.replace('_', "").parse().map_err(|_| bad())?;
        if number.is_finite() { self.visit_f64(number * factor) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(toml: &str) -> Result<u64, String> {
        let table: toml::Table = toml::from_str(&format!("x = {toml}")).map_err(|e| e.to_string())?;
        Count::deserialize(table["x"].clone()).map(|c| c.0).map_err(|e| e.message().to_string())
    }

    #[test]
    fn counts_accept_what_people_write() {
        for (text, want) in
            [("20_000_000", 20_000_000), ("2e7", 20_000_000), ("\"20M\"", 20_000_000), ("\"1.5k\"", 1500), ("8.0", 8), ("0", 0)]
        {
            assert_eq!(count(text), Ok(want), "{text}");
        }
        for text in ["-1", "2.5", "nan", "inf", "\"20Q\"", "\"\"", "true", "\"nan\"", "\"M\"", "\"é\""] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_refuse_what_lies_outside() {
        assert!(Unit::try_from(1.0).is_ok());
        assert_eq!(Unit::try_from(1.5), Err("must be in 0..=1, got 1.5".into()));
        assert!(Unit::try_from(f64::NAN).is_err());
        assert!(Positive::try_from(0.0).is_err());
        assert!(Fraction::try_from(1.0).is_ok() && Fraction::try_from(0.0).is_err() && Fraction::try_from(1.1).is_err());
        assert!(NonNegative::try_from(f64::INFINITY).is_err());
        assert!(AtLeast::<2>::try_from(1).is_err());
    }

    #[test]
    fn numbers_that_an_f32_cannot_hold_are_refused() {
        for x in [1e39, 1e300, f64::INFINITY] {
            assert_eq!(Positive::try_from(x), Err(format!("must be positive and at most 3.4e38, got {x:?}")));
            assert!(NonNegative::try_from(x).is_err() && Finite::try_from(x).is_err() && Finite::try_from(-x).is_err());
        }
        assert!(Finite::try_from(f64::NAN).is_err());
        assert!(Positive::try_from(f64::from(f32::MAX)).is_ok() && Finite::try_from(f64::from(f32::MIN)).is_ok());
    }

    #[test]
    fn the_ends_of_a_range_belong_to_it() {
        assert_eq!(Between::<2, 4>::try_from(2).map(Between::get), Ok(2));
        assert_eq!(Between::<2, 4>::try_from(4).map(Between::get), Ok(4));
        assert_eq!(Between::<2, 4>::try_from(5), Err("must be in 2..=4, got 5".into()));
        assert!(Between::<2, 4>::try_from(1).is_err());
        assert_eq!(serde_json::from_str::<Between<1, 4000>>("2e3").map(Between::get).map_err(|e| e.to_string()), Ok(2000));
    }
}
