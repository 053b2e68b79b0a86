//! Presets: a name under which a plugin has other defaults. A preset is a row in the registry, not a file of its own.

use std::fmt;
use std::marker::PhantomData;

use schemars::Schema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

/// What a preset is made of.
#[derive(Clone, Copy, Debug)]
pub struct PresetOf {
    /// The plugin it is a preset of.
    pub plugin: &'static str,
    /// The keys to which it gives other defaults.
    pub keys: fn() -> Map<String, Value>,
}

/// Reads a plugin's table, with `keys` where it does not say otherwise.
///
/// # Errors
/// As the plugin's own.
pub fn read<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D, keys: Map<String, Value>) -> Result<T, D::Error> {
    d.deserialize_map(WithKeys { keys, plugin: PhantomData })
}

/// A plugin's schema with the preset's defaults: what it gives is no longer required.
pub fn schema(mut of_plugin: Schema, keys: &Map<String, Value>) -> Schema {
    for (key, value) in keys {
        if let Some(property) = of_plugin.pointer_mut(&format!("/properties/{key}")).and_then(Value::as_object_mut) {
            property.insert("default".into(), value.clone());
        }
        if let Some(required) = of_plugin.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name != key);
        }
    }
    of_plugin
}

struct WithKeys<T> {
    keys: Map<String, Value>,
    plugin: PhantomData<T>,
}
impl<'de, T: Deserialize<'de>> Visitor<'de> for WithKeys<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of keys")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(Completed { map, left: self.keys, next: None }))
    }
}

/// The entries of `map`, then those of `left` that it does not have.
struct Completed<A> {
    map: A,
    left: Map<String, Value>,
    next: Option<Value>,
}
impl<'de, A: MapAccess<'de>> MapAccess<'de> for Completed<A> {
    type Error = A::Error;
    fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        if let Some(key) = self.map.next_key::<String>()? {
            self.left.remove(&key);
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        let Some(key) = self.left.keys().next().cloned() else { return Ok(None) };
        self.next = self.left.remove(&key);
        seed.deserialize(key.into_deserializer()).map(Some)
    }
    fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.next.take() {
            Some(value) => seed.deserialize(value).map_err(A::Error::custom),
            None => self.map.next_value_seed(seed),
        }
    }
}

/// Declares a preset of an estimator: its row in the registry, and a type that is the plugin with other defaults.
///
/// ```ignore
/// preset! {
///     Estimator "dr-grpo" is "grpo", Grpo as DrGrpo { std: false }
///     summary: "A trajectory's outcome against the mean of its group, not divided by its spread.",
///     source: "Liu et al. 2025, arXiv 2503.20783",
///     when: "Instead of `grpo`, where groups of other difficulty should not weigh alike.",
/// }
/// ```
#[macro_export]
macro_rules! preset {
    (
        Estimator $name:literal is $of:literal, $type:ident as $preset:ident { $($key:ident: $value:expr),* $(,)? }
        summary: $summary:literal,
        source: $source:literal,
        when: $when:literal $(,)?
    ) => {
        #[doc = concat!("`[estimator.", $name, "]`: `", $of, "` with other defaults.")]
        #[derive(Clone, Debug)]
        pub struct $preset(pub $type);
        impl $preset {
            fn keys() -> $crate::serde_json::Map<String, $crate::serde_json::Value> {
                [$((stringify!($key).to_string(), $crate::serde_json::json!($value))),*].into_iter().collect()
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $preset {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                $crate::preset::read(d, Self::keys()).map(Self)
            }
        }
        impl ::serde::Serialize for $preset {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                self.0.serialize(s)
            }
        }
        $crate::inventory::submit! {
            $crate::registry::Plugin {
                kind: $crate::registry::Kind::Estimator,
                name: $name,
                summary: $summary,
                source: $source,
                when: $when,
                example: "",
                doc: "",
                preset: Some($crate::preset::PresetOf { plugin: $of, keys: $preset::keys }),
                krate: ::std::env!("CARGO_PKG_NAME"),
                schema: |generator| {
                    $crate::preset::schema(<$type as $crate::schemars::JsonSchema>::json_schema(generator), &$preset::keys())
                },
            }
        }
        #[typetag::serde(name = $name)]
        impl $crate::AdvantageEstimator for $preset {
            fn needs(&self) -> Vec<$crate::Need> {
                self.0.needs()
            }
            fn targets(&self) -> Vec<String> {
                self.0.targets()
            }
            fn laws(&self) -> Vec<$crate::Law> {
                self.0.laws()
            }
            fn anchor(&self) -> Option<$crate::Anchor> {
                self.0.anchor()
            }
            fn decay(&self) -> Option<$crate::Decay> {
                self.0.decay()
            }
            fn estimate(&self, group: $crate::Group<'_>, now: &$crate::Now) -> Result<$crate::Credit, $crate::EstimateError> {
                self.0.estimate(group, now)
            }
        }
    };
}
