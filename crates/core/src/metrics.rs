//! Named numbers of an update, in the order of their names.
//!
//! Names are verl's where they exist (`critic/advantages/mean`, `actor/entropy`, `response_length/mean`), ours under
//! `credit/` and `cost/`.

use std::collections::BTreeMap;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Named numbers. Non-finite ones survive the round trip through JSON, as the strings `NaN`, `inf` and `-inf`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Sets a number.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }
    /// Adds to a number, which begins at 0.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        *self.0.entry(name.into()).or_insert(0.0) += value;
    }
    /// The number of that name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
    /// Mean, smallest and largest of some numbers, under `name/mean`, `name/min`, `name/max`; nothing for no numbers.
    pub fn summarise(&mut self, name: &str, numbers: impl IntoIterator<Item = f64>) {
        let (mut n, mut sum, mut min, mut max) = (0u64, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for x in numbers {
            n += 1;
            sum += x;
            min = min.min(x);
            max = max.max(x);
        }
        if n > 0 {
            self.set(format!("{name}/mean"), sum / n as f64);
            self.set(format!("{name}/min"), min);
            self.set(format!("{name}/max"), max);
        }
    }
    /// Takes over the numbers of another.
    pub fn extend(&mut self, other: Metrics) {
        self.0.extend(other.0);
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (name, x) in &self.0 {
            if x.is_finite() {
                map.serialize_entry(name, x)?;
            } else {
                map.serialize_entry(name, &x.to_string())?;
            }
        }
        map.end()
    }
}
impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Number(f64);
        impl<'de> Deserialize<'de> for Number {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct V;
                impl Visitor<'_> for V {
                    type Value = Number;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a number, or one of \"NaN\", \"inf\", \"-inf\"")
                    }
                    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Number, E> {
                        Ok(Number(x))
                    }
                    fn visit_i64<E: de::Error>(self, x: i64) -> Result<Number, E> {
                        Ok(Number(x as f64))
                    }
                    fn visit_u64<E: de::Error>(self, x: u64) -> Result<Number, E> {
                        Ok(Number(x as f64))
                    }
                    fn visit_str<E: de::Error>(self, s: &str) -> Result<Number, E> {
                        match s {
                            "NaN" => Ok(Number(f64::NAN)),
                            "inf" => Ok(Number(f64::INFINITY)),
                            "-inf" => Ok(Number(f64::NEG_INFINITY)),
                            _ => Err(E::invalid_value(de::Unexpected::Str(s), &self)),
                        }
                    }
                }
                d.deserialize_any(V)
            }
        }
        let numbers = BTreeMap::<String, Number>::deserialize(d)?;
        Ok(Self(numbers.into_iter().map(|(k, v)| (k, v.0)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_number_survives_json_to_the_bit(bits: u64) {
            let x = f64::from_bits(bits);
            let mut m = Metrics::default();
            m.set("x", x);
            let back: Metrics = serde_json::from_str(&serde_json::to_string(&m).unwrap()).unwrap();
            let y = back.get("x").unwrap();
            prop_assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan());
        }
    }
}
