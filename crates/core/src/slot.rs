//! `Slot<dyn Trait>`: the place in an experiment where exactly one plugin goes.
//!
//! Hand-written visitors: `#[serde(untagged)]` and `flatten` buffer, and with the buffer go key path and message.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Serialize, Serializer};

/// A plugin: in TOML its name, or a table with exactly one plugin. Plain typetag would take the first of two, silently.
pub struct Slot<T: ?Sized>(pub Box<T>);

impl<T: ?Sized + fmt::Debug> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl<T: ?Sized> Deref for Slot<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
impl<T: ?Sized> Serialize for Slot<T>
where
    Box<T>: Serialize,
{
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(s)
    }
}
impl<'de, T: ?Sized> Deserialize<'de> for Slot<T>
where
    Box<T>: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(SlotVisitor(PhantomData))
    }
}
impl<T: ?Sized + JsonSchema> JsonSchema for Slot<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

struct SlotVisitor<T: ?Sized>(PhantomData<Box<T>>);

impl<'de, T: ?Sized> Visitor<'de> for SlotVisitor<T>
where
    Box<T>: Deserialize<'de>,
{
    type Value = Slot<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plugin: its name, or a table with exactly one plugin")
    }
    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let no_keys = std::iter::empty::<(String, String)>();
        let one = MapDeserializer::new(std::iter::once((name, MapDeserializer::<_, E>::new(no_keys))));
        Box::<T>::deserialize(one).map(Slot)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let plugin = Box::<T>::deserialize(MapAccessDeserializer::new(&mut map))?;
        if map.next_key::<IgnoredAny>()?.is_some() {
            return Err(A::Error::custom("two plugins in one slot, exactly one fits"));
        }
        Ok(Slot(plugin))
    }
}
