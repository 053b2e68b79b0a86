//! Plugins from their TOML.

use serde::de::DeserializeOwned;

/// The slot that holds the plugin `name` with the keys of `body`.
pub fn plugin<T: DeserializeOwned>(name: &str, body: &str) -> T {
    let body: toml::Table = toml::from_str(body).unwrap_or_else(|e| panic!("`{name}`: its keys are no TOML: {e}"));
    let slot = toml::Table::from_iter([(name.to_string(), toml::Value::Table(body))]);
    T::deserialize(toml::Value::Table(slot)).unwrap_or_else(|e| panic!("`{name}`: its keys are refused: {e}"))
}
