//! Scores as numpy reads them.

use std::io::{Seek, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::StudyError;
use crate::export::visible::visible;
use crate::scores::Scores;
use crate::table::Table;

/// Writes what `dict(numpy.load(path))` reads as rliable's scores: a name for each arm, with an array `[runs × tasks]` of
/// `float64`.
///
/// Runs lie in order of their seeds, tasks as in the table. Runs that failed are in no array, and an arm without a run that
/// finished has none: rliable knows no gaps. [`Table::counting_failures_as`] gives them a score.
///
/// An array is called as its arm is, but that what could lead out of a folder into which the archive is unpacked, or is not seen, is
/// written as `%` and two hexadecimal digits for each byte (RFC 3986): `../../x` as `%2E.%2F..%2Fx`. Different arms have different
/// names, and `urllib.parse.unquote` gives each arm's back.
///
/// The same table gives the same bytes: members are stored without compression and dated 1980.
///
/// # Errors
/// If `out` cannot be written, or an arm's name is too long for a member's.
pub fn write_npz<W: Write + Seek>(table: &Table, out: W) -> Result<(), StudyError> {
    let failed = |e: &dyn std::fmt::Display| StudyError::Write(e.to_string());
    let mut archive = ZipWriter::new(out);
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for arm in table.arms() {
        if let Some(scores) = &arm.scores {
            archive.start_file(format!("{}.npy", member(&arm.name)), stored).map_err(|e| failed(&e))?;
            archive.write_all(&npy(scores)).map_err(|e| failed(&e))?;
        }
    }
    archive.finish().and_then(|mut out| Ok(out.flush()?)).map_err(|e| failed(&e))
}

/// Name of an arm as that of a file anywhere.
fn member(arm: &str) -> String {
    /// What paths are made of, what some systems allow in no file, and what marks an escape.
    const SPECIAL: [char; 10] = ['%', '/', '\\', ':', '*', '?', '"', '<', '>', '|'];
    // numpy leaves this ending out of a name, and would take the name for another's.
    let ending = arm.strip_suffix(".npy").map(str::len);
    // Some systems leave these out at the end of a name.
    let end = arm.trim_end_matches([' ', '.']).len();
    let mut out = String::new();
    for (at, c) in arm.char_indices() {
        let here = &arm[at..at + c.len_utf8()];
        let edge = at == 0 && c == '.' || ending == Some(at) || at >= end;
        if edge || SPECIAL.contains(&c) || c.is_control() || visible(here) != here {
            out.extend(here.bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// The array in version 1.0 of numpy's format: magic, length of the header, the header as a literal of Python, the numbers.
fn npy(scores: &Scores) -> Vec<u8> {
    /// The numbers begin at a multiple of it.
    const ALIGN: usize = 64;
    const BEFORE_HEADER: usize = 10;
    let shape = format!("({}, {})", scores.n_runs(), scores.n_tasks());
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = BEFORE_HEADER + header.len() + 1;
    header.push_str(&" ".repeat(unpadded.next_multiple_of(ALIGN) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).expect("two numbers and some words are short");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend(length.to_le_bytes());
    out.extend(header.bytes());
    out.extend(scores.values().iter().flat_map(|score| score.to_le_bytes()));
    out
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Read};

    use super::*;
    use crate::table::{Arm, Range, Run, Training};
    use proptest::prelude::*;

    fn written(names: &[&str]) -> Vec<u8> {
        let run = |seed, scores: &[f64]| Run { seed, result: Ok(scores.to_vec()) };
        let runs = || {
            let failed = Run { seed: 3, result: Err("killed".into()) };
            vec![run(2, &[0.5, 0.25, 1.0]), failed, run(1, &[0.1, -0.0, 1e-300])]
        };
        let arms = names.iter().map(|name| Arm { name: name.to_string(), runs: runs() }).collect();
        let tasks = ["a", "b", "c"].map(String::from).to_vec();
        let table = Table::new(tasks, Range::UNIT, Training::ForAllTasks, arms).unwrap();
        let mut out = Cursor::new(Vec::new());
        write_npz(&table, &mut out).unwrap();
        out.into_inner()
    }

    #[test]
    fn arrays_are_stored_as_numpy_stores_them() {
        let mut archive = zip::ZipArchive::new(Cursor::new(written(&["grpo", "Größe/λ=0.9"]))).unwrap();
        assert_eq!(archive.file_names().map(Result::unwrap).collect::<Vec<_>>(), ["grpo.npy", "Größe%2Fλ=0.9.npy"]);
        for i in 0..archive.len() {
            let mut member = archive.by_index(i).unwrap();
            assert_eq!(member.compression(), CompressionMethod::Stored);
            let mut bytes = Vec::new();
            member.read_to_end(&mut bytes).unwrap();
            // what numpy.lib.format.write_array writes for a C-ordered (2, 3) array of float64
            let header = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }";
            assert_eq!(bytes[..header.len()], header[..]);
            assert_eq!((bytes.len(), bytes[127]), (128 + 6 * 8, b'\n'));
            assert!(bytes[header.len()..127].iter().all(|byte| *byte == b' '));
            let numbers = bytes[128..].as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b).to_bits());
            let want = [0.1, -0.0, 1e-300, 0.5, 0.25, 1.0].map(f64::to_bits);
            assert_eq!(numbers.collect::<Vec<_>>(), want);
        }
    }

    #[test]
    fn the_same_table_gives_the_same_bytes() {
        assert_eq!(written(&["x", "y"]), written(&["x", "y"]));
    }

    #[test]
    fn names_lead_nowhere_and_are_told_apart() {
        let names =
            ["../../x", "..", "/etc/x", "C:\\x", "a%2Fb", "a/b", "a", "a.npy", "a.", "\u{202e}x\0", "grpo + shuffle, lr=0.1"];
        let bytes = written(&names);
        let archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        let members: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
        let want = [
            "%2E.%2F..%2Fx.npy",
            "%2E%2E.npy",
            "%2Fetc%2Fx.npy",
            "C%3A%5Cx.npy",
            "a%252Fb.npy",
            "a%2Fb.npy",
            "a.npy",
            "a%2Enpy.npy",
            "a%2E.npy",
            "%E2%80%AEx%00.npy",
            "grpo + shuffle, lr=0.1.npy",
        ];
        assert_eq!(members, want);
        for (name, member) in names.iter().zip(members) {
            assert_eq!(unquoted(member.strip_suffix(".npy").unwrap()), *name);
        }
    }

    /// What `urllib.parse.unquote` gives.
    fn unquoted(text: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, after @ ..] = rest {
            let escaped = (*first == b'%').then(|| u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
            bytes.push(escaped.unwrap_or(*first));
            rest = &after[if escaped.is_some() { 2 } else { 0 }..];
        }
        String::from_utf8(bytes).unwrap()
    }

    proptest! {
        #[test]
        fn any_name_is_a_file_of_its_own_and_comes_back(name in any::<String>().prop_filter("named", |name| !name.trim().is_empty())) {
            let member = member(&name);
            prop_assert!(!member.contains(['/', '\\', ':']) && !member.starts_with('.') && !member.ends_with(['.', ' ']), "{member}");
            prop_assert!(!member.ends_with(".npy") && !member.contains(char::is_control), "{member}");
            prop_assert_eq!(unquoted(&member), name);
        }
    }

    #[test]
    fn a_name_that_no_archive_can_hold_is_an_error() {
        let run = Run { seed: 1, result: Ok(vec![0.5]) };
        let arm = Arm { name: "x".repeat(70_000), runs: vec![run] };
        let table = Table::new(vec!["a".into()], Range::UNIT, Training::PerTask, vec![arm]).unwrap();
        let refused = write_npz(&table, Cursor::new(Vec::new())).unwrap_err();
        assert!(matches!(refused, StudyError::Write(_)), "{refused}");
    }
}
