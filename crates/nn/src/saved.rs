//! Weights and optimiser state as bytes.
//!
//! `magic | version u32 | header length u64 | header JSON | f32 numbers | SHA-256 of everything before`, little-endian.
//! The header names the configuration, the heads and each tensor with its length; a parameter's numbers are its value
//! and, if it has been trained, its two moments.

use crate::{
    config::ModelConfig,
    error::NnError,
    frozen::{Frozen, HeadSpec},
    net::{floats, host},
    optimizer::{Moments, OptimizerState},
    params,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const MAGIC: &[u8; 8] = b"ascribe\0";
const VERSION: u32 = 1;
const DIGEST: usize = 32;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    config: ModelConfig,
    heads: Vec<HeadSpec>,
    tensors: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    len: usize,
    /// Optimiser steps; `None` without moments.
    steps: Option<u64>,
}

impl Entry {
    /// Numbers stored for it, if that many can exist.
    fn numbers(&self) -> Option<usize> {
        self.len.checked_mul(if self.steps.is_some() { 3 } else { 1 })
    }
}

/// Writes weights and, where there are any, moments.
pub(crate) fn write(frozen: &Frozen, optimizer: &OptimizerState) -> Vec<u8> {
    let parameters = frozen.parameters();
    let moments = |index: usize| optimizer.get(index).and_then(Option::as_ref);
    let tensors = parameters
        .iter()
        .enumerate()
        .map(|(index, info)| Entry { name: info.name.clone(), len: info.len(), steps: moments(index).map(|m| m.steps) })
        .collect();
    let header = Header { config: frozen.config.clone(), heads: frozen.heads.clone(), tensors };
    let header = serde_json::to_vec(&header).expect("a header of plain data is JSON");
    let mut out = Vec::new();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(header.len() as u64).to_le_bytes());
    out.extend_from_slice(&header);
    let mut append = |values: Vec<f32>| values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    for (index, value) in params::values(&frozen.net).into_iter().enumerate() {
        append(value);
        if let Some(moments) = moments(index) {
            append(host(moments.first.clone()));
            append(host(moments.second.clone()));
        }
    }
    let digest = Sha256::digest(&out);
    out.extend_from_slice(&digest);
    out
}

fn fail<T>(problem: impl Into<String>) -> Result<T, NnError> {
    Err(NnError::Saved(problem.into()))
}

/// Splits off the first `n` bytes.
fn split<'a>(bytes: &mut &'a [u8], n: usize, what: &str) -> Result<&'a [u8], NnError> {
    match bytes.split_at_checked(n) {
        Some((head, tail)) => {
            *bytes = tail;
            Ok(head)
        }
        None => fail(format!("they end inside {what}; the file is truncated")),
    }
}

/// Header and numbers of intact bytes.
fn parse(bytes: &[u8]) -> Result<(Header, Vec<f32>), NnError> {
    let mut rest = bytes;
    if split(&mut rest, MAGIC.len(), "the signature")? != MAGIC {
        return fail("they do not begin like saved weights; is this another kind of file?");
    }
    let version = split(&mut rest, 4, "the version")?;
    let version = u32::from_le_bytes(version.try_into().expect("4 bytes"));
    if version != VERSION {
        return fail(format!("format version {version} is unknown; this program reads version {VERSION}"));
    }
    let Some((body, digest)) = bytes.split_last_chunk::<DIGEST>() else {
        return fail("they end inside the checksum; the file is truncated");
    };
    if Sha256::digest(body).as_slice() != digest {
        return fail("their checksum does not match; the file is damaged or truncated");
    }
    let mut rest = body.get(MAGIC.len() + 4..).unwrap_or_default();
    let len = split(&mut rest, 8, "the header's length")?;
    let len = u64::from_le_bytes(len.try_into().expect("8 bytes"));
    let header = split(&mut rest, usize::try_from(len).unwrap_or(usize::MAX), "the header")?;
    let header: Header = match serde_json::from_slice(header) {
        Ok(header) => header,
        Err(error) => return fail(format!("their header cannot be read: {error}")),
    };
    let numbers = header.tensors.iter().try_fold(0usize, |sum, entry| sum.checked_add(entry.numbers()?));
    if numbers.and_then(|n| n.checked_mul(4)) != Some(rest.len()) {
        return fail("their header does not match their length; the file is damaged");
    }
    let values = rest.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    Ok((header, values))
}

/// What `bytes` hold, fitted to a model of the same configuration.
pub(crate) fn read(model: &Frozen, bytes: &[u8]) -> Result<(Frozen, OptimizerState), NnError> {
    let (header, values) = parse(bytes)?;
    if header.config != model.config {
        let show = |config: &ModelConfig| serde_json::to_string(config).unwrap_or_default();
        return fail(format!("they belong to another model: {} instead of {}", show(&header.config), show(&model.config)));
    }
    let mut frozen = model.clone();
    for head in header.heads {
        match frozen.heads.iter().find(|known| known.name == head.name) {
            Some(known) if *known == head => {}
            Some(_) => return fail(format!("their head `{}` is configured differently", head.name)),
            None => frozen.add_head(head)?,
        }
    }
    let mut stored = BTreeMap::new();
    let mut rest = values.as_slice();
    for entry in header.tensors {
        let (numbers, tail) = rest.split_at(entry.numbers().expect("checked"));
        rest = tail;
        stored.insert(entry.name.clone(), (entry, numbers));
    }
    let parameters = frozen.parameters();
    let mut optimizer = OptimizerState::new();
    let mut missing = None;
    let device = frozen.device.clone();
    let tensor = |values: &[f32]| floats(values.to_vec(), [values.len()], &device);
    frozen.replace(|index, value| {
        let info = &parameters[index];
        let Some((entry, numbers)) = stored.remove(&info.name) else {
            if !info.name.starts_with("head.") {
                missing.get_or_insert(info.name.clone());
            }
            optimizer.push(None);
            return value;
        };
        if entry.len != info.len() {
            missing.get_or_insert(info.name.clone());
            optimizer.push(None);
            return value;
        }
        optimizer.push(entry.steps.map(|steps| Moments {
            steps,
            first: tensor(&numbers[entry.len..2 * entry.len]),
            second: tensor(&numbers[2 * entry.len..]),
        }));
        tensor(&numbers[..entry.len])
    });
    if let Some(name) = missing {
        return fail(format!("`{name}` is missing or has another size"));
    }
    if let Some(name) = stored.keys().next() {
        return fail(format!("this model has no `{name}`"));
    }
    Ok((frozen, optimizer))
}
