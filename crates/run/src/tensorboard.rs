//! TensorBoard event files: a record is `length, crc(length), data, crc(data)`, data a protobuf `Event`.
//!
//! Scalars only, written by hand: `Event { wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
//! summary = 5 }`, `Summary { value = 1 }`, `Value { tag = 1 (string), simple_value = 2 (float) }`.

use ascribe_core::Metrics;

/// Name of the event file; TensorBoard looks for `tfevents` in it.
pub const FILE: &str = "events.out.tfevents.0.ascribe";

/// The record that begins every event file.
pub fn header(wall_time: f64) -> Vec<u8> {
    let mut event = Vec::new();
    double(&mut event, 1, wall_time);
    bytes(&mut event, 3, b"brain.Event:2");
    record(&event)
}

/// One record with the scalars of a step.
pub fn scalars(wall_time: f64, step: u64, metrics: &Metrics) -> Vec<u8> {
    let mut summary = Vec::new();
    for (name, x) in &metrics.0 {
        let mut value = Vec::new();
        bytes(&mut value, 1, name.as_bytes());
        key(&mut value, 2, 5);
        value.extend_from_slice(&(*x as f32).to_le_bytes());
        bytes(&mut summary, 1, &value);
    }
    let mut event = Vec::new();
    double(&mut event, 1, wall_time);
    key(&mut event, 2, 0);
    varint(&mut event, step);
    bytes(&mut event, 5, &summary);
    record(&event)
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(data.len() + 16);
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_crc(&length).to_le_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(&masked_crc(data).to_le_bytes());
    out
}

/// TFRecord masks its CRC-32C, so that a checksum of data that hold checksums stays a good one.
fn masked_crc(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn varint(out: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        out.push(x as u8 | 0x80);
        x >>= 7;
    }
    out.push(x as u8);
}
fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}
fn bytes(out: &mut Vec<u8>, field: u64, data: &[u8]) {
    key(out, field, 2);
    varint(out, data.len() as u64);
    out.extend_from_slice(data);
}
fn double(out: &mut Vec<u8>, field: u64, x: f64) {
    key(out, field, 1);
    out.extend_from_slice(&x.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader of its own: fields of a message as (number, wire type, payload).
    fn fields(mut data: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        fn read_varint(data: &mut &[u8]) -> u64 {
            let (mut x, mut shift) = (0, 0);
            loop {
                let byte = data[0];
                *data = &data[1..];
                x |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return x;
                }
            }
        }
        let mut out = Vec::new();
        while !data.is_empty() {
            let key = read_varint(&mut data);
            let payload = match key & 7 {
                0 => read_varint(&mut data).to_le_bytes().to_vec(),
                wire => {
                    let n = match wire {
                        1 => 8,
                        5 => 4,
                        _ => read_varint(&mut data) as usize,
                    };
                    let (head, tail) = data.split_at(n);
                    data = tail;
                    head.to_vec()
                }
            };
            out.push((key >> 3, key & 7, payload));
        }
        out
    }

    fn records(mut file: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while !file.is_empty() {
            let n = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
            let crc = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            assert_eq!(crc(8), masked_crc(&file[..8]));
            let data = file[12..12 + n].to_vec();
            assert_eq!(crc(12 + n), masked_crc(&data));
            out.push(data);
            file = &file[16 + n..];
        }
        out
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        // RFC 3720, B.4: 32 bytes of zeros
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_reader_finds_what_was_written() {
        let mut metrics = Metrics::default();
        metrics.set("actor/entropy", 0.5);
        metrics.set("loss/NaN", f64::NAN);
        let mut file = header(1.5);
        file.extend(scalars(2.5, 300, &metrics));
        let records = records(&file);
        assert_eq!(fields(&records[0]), [(1, 1, 1.5f64.to_le_bytes().to_vec()), (3, 2, b"brain.Event:2".to_vec())]);
        let event = fields(&records[1]);
        assert_eq!(event[0], (1, 1, 2.5f64.to_le_bytes().to_vec()));
        assert_eq!(event[1], (2, 0, 300u64.to_le_bytes().to_vec()));
        let values: Vec<(String, f32)> = fields(&event[2].2)
            .into_iter()
            .map(|(_, _, value)| {
                let value = fields(&value);
                let number = f32::from_le_bytes(value[1].2[..].try_into().unwrap());
                (String::from_utf8(value[0].2.clone()).unwrap(), number)
            })
            .collect();
        assert_eq!(values[0], ("actor/entropy".into(), 0.5));
        assert!(values[1].1.is_nan());
    }
}
