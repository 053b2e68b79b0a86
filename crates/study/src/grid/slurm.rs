//! Cells as job arrays of Slurm.
//!
//! The cells that are missing become a job array, one cell per task, and one job more that depends on it. After tuning that job
//! submits the runs that are reported; after those it writes the report. Nothing of ours waits meanwhile: what is done is read from
//! the folder.
//!
//! A task's shell gives way to the cell's process, so that Slurm's signals reach the run itself. It saves, ends, and puts its task
//! back into the queue ([`requeue`]).

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::GridError;
use super::folder::{GridFolder, SLURM};
use super::plan::{Cell, Plan};
use super::work::{Event, failures, missing, reported};

/// Tasks of one array. Slurm's `MaxArraySize` is 1001 unless a site sets another one.
const MOST_TASKS: usize = 1000;

/// Seconds before its time limit at which a task is asked to stop. An update has to fit in.
const LEAD: u32 = 120;

/// What sbatch is told by us; an option that says otherwise would break the chain of jobs.
const OURS: [&str; 16] = [
    "--array",
    "-a",
    "--chdir",
    "-D",
    "--dependency",
    "-d",
    "--error",
    "-e",
    "--no-requeue",
    "--open-mode",
    "--output",
    "-o",
    "--parsable",
    "--requeue",
    "--wait",
    "--wrap",
];

/// How to submit.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The program that has the commands `grid cell`, `grid resume` and `grid report`, on every node.
    pub program: PathBuf,
    /// The folder that relative paths are seen from.
    pub base: PathBuf,
    /// Cells at a time; all that the cluster has room for if left out.
    pub jobs: Option<u64>,
    /// Whether cells that failed are tried again.
    pub retry: bool,
    /// Options of sbatch, for every job of the grid; see [`check_option`].
    pub options: Vec<String>,
    /// Whether this is the job that follows tuning: what is missing of it by now is not submitted again.
    pub after_tuning: bool,
}

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its number in Slurm; an array's tasks share it.
    pub id: String,
    /// What it does.
    pub kind: JobKind,
    /// Cells that it runs.
    pub cells: usize,
    /// Its script.
    pub script: PathBuf,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// It runs tuning cells.
    Tuning,
    /// It submits what comes after tuning.
    Next,
    /// It runs cells that are reported.
    Cells,
    /// It writes the tables.
    Report,
}

impl JobKind {
    /// A word for files and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            JobKind::Tuning => "tuning",
            JobKind::Next => "next",
            JobKind::Cells => "cells",
            JobKind::Report => "report",
        }
    }
}

/// What came of submitting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Jobs, which are in the queue.
    Jobs,
    /// Nothing but cells that other processes run.
    Elsewhere {
        /// How many.
        cells: usize,
    },
    /// Nothing: every cell is done or has failed.
    Finished {
        /// Cells that failed.
        failed: usize,
    },
}

/// Submits what is missing of a grid: tuning runs and a job that goes on after them, or the runs that are reported and a job that
/// writes the report.
///
/// # Errors
/// If the folder cannot be read or written, or Slurm refuses a job.
pub fn submit(plan: &Plan, folder: &GridFolder, how: &Slurm, on: &mut dyn FnMut(Event<'_>)) -> Result<Submitted, GridError> {
    let tuning = plan.tuning()?;
    if !tuning.is_empty() {
        folder.plan_tuning(&tuning)?;
        let (missing, done) = missing(folder, &tuning, how.retry && !how.after_tuning)?;
        on(Event::Planned { tuning: true, cells: tuning.len(), done });
        if !missing.is_empty() && how.after_tuning {
            let text = format!(
                "tuning is not over: {} of its runs are neither done nor failed, and their jobs have ended. See what they said in \
                 `{}`, then go on with `ascribe grid resume {} --launcher slurm`",
                missing.len(),
                folder.logs().display(),
                folder.path().display()
            );
            return Err(GridError::Slurm(text));
        }
        if !missing.is_empty() {
            return chain(plan, folder, how, &missing, [JobKind::Tuning, JobKind::Next], on);
        }
    }
    let reported = reported(plan, folder, &tuning, how.retry)?;
    let (missing, done) = missing(folder, &reported, how.retry)?;
    on(Event::Planned { tuning: false, cells: reported.len(), done });
    if missing.is_empty() {
        return Ok(Submitted::Finished { failed: failures(folder, tuning.iter().chain(&reported))? });
    }
    chain(plan, folder, how, &missing, [JobKind::Cells, JobKind::Report], on)
}

/// Submits arrays of cells, and the job after them.
fn chain(
    plan: &Plan,
    folder: &GridFolder,
    how: &Slurm,
    missing: &[&Cell],
    kinds: [JobKind; 2],
    on: &mut dyn FnMut(Event<'_>),
) -> Result<Submitted, GridError> {
    let free: Vec<&Cell> = missing.iter().copied().filter(|cell| !ascribe_run::folder::is_held(&folder.run(cell))).collect();
    if free.is_empty() {
        return Ok(Submitted::Elsewhere { cells: missing.len() });
    }
    let place = Place::of(plan, folder, how)?;
    let mut arrays: Vec<String> = Vec::new();
    for (i, cells) in free.chunks(MOST_TASKS).enumerate() {
        let kind = kinds[0];
        let name = if i == 0 { kind.as_str().to_string() } else { format!("{}-{}", kind.as_str(), i + 1) };
        // Arrays take turns where only so many cells may run at a time.
        let after = if how.jobs.is_some() { arrays[i.saturating_sub(1)..].to_vec() } else { Vec::new() };
        let batch = Batch { kind, cells: cells.len(), name, number: "%A_%a", after, script: array(&place, how, cells) };
        arrays.push(place.sbatch(folder, &batch, on)?);
    }
    let kind = kinds[1];
    let words = match kind {
        JobKind::Next => next_words(&place, how),
        _ => vec!["grid".into(), "report".into(), place.folder.clone()],
    };
    let script = single(&place, how, kind, &words);
    let last = Batch { kind, cells: 0, name: kind.as_str().into(), number: "%j", after: arrays, script };
    place.sbatch(folder, &last, on)?;
    Ok(Submitted::Jobs)
}

/// A job before it is submitted.
struct Batch {
    kind: JobKind,
    cells: usize,
    /// Of its files.
    name: String,
    /// What tells its outputs apart, as Slurm writes it.
    number: &'static str,
    /// Jobs that have to end before it begins.
    after: Vec<String>,
    script: String,
}

/// Where things lie, seen from every folder, and as text.
struct Place {
    name: String,
    program: String,
    base: String,
    folder: String,
    logs: String,
    slurm: PathBuf,
}

impl Place {
    fn of(plan: &Plan, folder: &GridFolder, how: &Slurm) -> Result<Self, GridError> {
        let text = |path: PathBuf| {
            let named = |_| format!("a script for Slurm cannot name `{}`: it is not UTF-8; give it another name", path.display());
            path.clone().into_os_string().into_string().map_err(named).map_err(GridError::Slurm)
        };
        let seen = |path: &Path| how.base.join(path);
        let logs = seen(&folder.logs());
        fs::create_dir_all(&logs)
            .map_err(|e| GridError::Slurm(format!("the folder `{}` cannot be made: {e}", logs.display())))?;
        Ok(Self {
            name: plan.name.clone(),
            program: text(how.program.clone())?,
            base: text(how.base.clone())?,
            folder: text(seen(folder.path()))?,
            logs: text(logs)?,
            slurm: seen(folder.path()).join(SLURM),
        })
    }

    /// Writes a script, submits it, and gives the number of its job.
    fn sbatch(&self, folder: &GridFolder, batch: &Batch, on: &mut dyn FnMut(Event<'_>)) -> Result<String, GridError> {
        let file = format!("{}.sh", batch.name);
        folder.write(&Path::new(SLURM).join(&file), batch.script.as_bytes())?;
        let path = self.slurm.join(file);
        let words = self.words(batch, &path);
        let refused = |why| GridError::Slurm(format!("{why}\nthe script stays in `{}`", path.display()));
        let answer = ask("sbatch", &words).map_err(refused)?;
        // `number`, or `number;cluster`; whatever a site's own messages say stands in lines before.
        let id = answer.lines().last().and_then(|line| line.split(';').next()).unwrap_or_default().trim().to_string();
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_digit()) {
            return Err(refused(format!("`sbatch` gave no job number but `{}`", answer.trim())));
        }
        let job = Job { id: id.clone(), kind: batch.kind, cells: batch.cells, script: path.clone() };
        folder.submitted(&job)?;
        on(Event::Submitted(&job));
        Ok(id)
    }

    /// What sbatch is told beside the script: what would have to be quoted in it.
    fn words(&self, batch: &Batch, script: &Path) -> Vec<String> {
        let mut words = vec![
            "--parsable".into(),
            format!("--job-name={} {}", self.name, batch.name),
            format!("--chdir={}", self.base),
            format!("--output={}", output(&self.slurm.join(format!("{}-", batch.name)), batch.number)),
        ];
        if !batch.after.is_empty() {
            words.push(format!("--dependency=afterany:{}", batch.after.join(":")));
        }
        words.push(script.display().to_string());
        words
    }
}

/// File of what Slurm itself says of a job. It replaces `%` and what follows, and takes backslashes away.
fn output(path: &Path, number: &str) -> String {
    let path = path.display().to_string();
    if path.contains('\\') { "/dev/null".into() } else { format!("{}{number}.txt", path.replace('%', "%%")) }
}

/// The script of an array: one cell per task. It holds the list, for sbatch keeps a copy: a later submission changes nothing in
/// what waits.
fn array(place: &Place, how: &Slurm, cells: &[&Cell]) -> String {
    let at_a_time = how.jobs.map_or_else(String::new, |n| format!("%{n}"));
    let mut out = head(
        &[
            format!("--array=0-{}{at_a_time}", cells.len() - 1),
            "--requeue".into(),
            format!("--signal=B:TERM@{LEAD}"),
            "--open-mode=append".into(),
        ],
        &how.options,
    );
    out += "# One cell per task. The cell takes the shell's place, and with it the signal to stop: it saves, and requeues its task.\n";
    let _ = writeln!(out, "cd {} || exit 1\nset -- \\", quoted(&place.base));
    for (i, cell) in cells.iter().enumerate() {
        let _ = writeln!(out, "  {}{}", cell.id, if i + 1 < cells.len() { " \\" } else { "" });
    }
    let _ = writeln!(
        out,
        "shift \"$SLURM_ARRAY_TASK_ID\"\nexec {} grid cell {} \"$1\" --threads \"${{SLURM_CPUS_PER_TASK:-1}}\" --requeue >>{}/\"$1\".txt 2>&1",
        quoted(&place.program),
        quoted(&place.folder),
        quoted(&place.logs)
    );
    out
}

/// The script of a job that runs one of the program's commands.
fn single(place: &Place, how: &Slurm, kind: JobKind, words: &[String]) -> String {
    // A report can be written again; to submit again would submit twice.
    let again = if kind == JobKind::Next { "--no-requeue" } else { "--requeue" };
    let mut out = head(&[again.into(), "--open-mode=append".into()], &how.options);
    let _ = writeln!(out, "cd {} || exit 1", quoted(&place.base));
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let _ = writeln!(out, "exec {} {}", quoted(&place.program), words.join(" "));
    out
}

fn head(ours: &[String], options: &[String]) -> String {
    let mut out = String::from("#!/bin/sh\n");
    for option in ours.iter().chain(options) {
        let _ = writeln!(out, "#SBATCH {option}");
    }
    out
}

/// The command that goes on after tuning.
fn next_words(place: &Place, how: &Slurm) -> Vec<String> {
    let mut words: Vec<String> =
        ["grid", "resume", &place.folder, "--launcher", "slurm", "--after-tuning"].map(str::to_string).into();
    words.extend(how.jobs.map(|n| format!("--jobs={n}")));
    words.extend(how.retry.then(|| "--retry".into()));
    words.extend(how.options.iter().map(|option| format!("--slurm={option}")));
    words
}

/// A word as a shell takes it, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Takes an option of sbatch, which becomes a line `#SBATCH OPTION`.
///
/// # Errors
/// If it is no option, holds control characters, or is one that the launcher sets.
pub fn check_option(option: &str) -> Result<String, String> {
    if option.chars().any(char::is_control) {
        return Err("it holds a control character: it has to be one line".into());
    }
    let Some(name) = option.split(['=', ' ']).next().filter(|name| name.starts_with('-') && name.len() > 1) else {
        return Err("write it as sbatch takes it, for example --slurm=--partition=gpu".into());
    };
    // A long option may be cut short, and a short one be followed by its value.
    let name = if name.starts_with("--") { name } else { &name[..name.char_indices().nth(2).map_or(name.len(), |(i, _)| i)] };
    if OURS.iter().any(|ours| *ours == name || (name.len() > 2 && ours.starts_with(name))) {
        return Err(format!("`{name}` is set by Ascribe: it makes the jobs of a grid follow each other"));
    }
    if name == "--signal" && !option.starts_with("--signal=B:TERM@") {
        return Err("a cell saves when its task is sent TERM: write --slurm=--signal=B:TERM@SECONDS".into());
    }
    Ok(option.into())
}

/// Jobs of a grid that are in Slurm's queue or run; none where Slurm cannot be asked.
///
/// # Errors
/// If the list of jobs is damaged.
pub fn queued(folder: &GridFolder) -> Result<Vec<Job>, GridError> {
    let jobs = folder.jobs()?;
    if jobs.is_empty() {
        return Ok(jobs);
    }
    let listed = ask("squeue", &["--me".into(), "--noheader".into(), "--format=%F".into()]).unwrap_or_default();
    Ok(jobs.into_iter().filter(|job| listed.lines().any(|id| id.trim() == job.id)).collect())
}

/// Puts the array's task that this process is back into the queue. `false` if its job is being ended: whoever cancels a job does
/// not want it back, and what Slurm ends to requeue it is requeued without us.
///
/// # Errors
/// If this is no task of an array, or Slurm does not take it back.
pub fn requeue() -> Result<bool, GridError> {
    let of = |name: &str| {
        let missing =
            |_| GridError::Slurm(format!("`{name}` is not set: this is no task of a job array, and cannot be requeued"));
        std::env::var(name).map_err(missing)
    };
    let task = format!("{}_{}", of("SLURM_ARRAY_JOB_ID")?, of("SLURM_ARRAY_TASK_ID")?);
    let state =
        ask("squeue", &["--noheader".into(), "--format=%T".into(), format!("--jobs={task}")]).map_err(GridError::Slurm)?;
    if state.trim() != "RUNNING" {
        return Ok(false);
    }
    ask("scontrol", &["requeue".into(), task]).map_err(GridError::Slurm)?;
    Ok(true)
}

/// What one of Slurm's commands says.
fn ask(program: &str, words: &[String]) -> Result<String, String> {
    let out = Command::new(program).args(words).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!("`{program}` was not found: run this on a login node of a cluster with Slurm, or leave out --launcher")
        }
        _ => format!("`{program}` cannot be started: {e}"),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if out.status.success() {
        return Ok(text(&out.stdout));
    }
    Err(format!("`{program}` refused ({}): {}", out.status, text(if out.stderr.is_empty() { &out.stdout } else { &out.stderr })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = "/home/o'ne two$x %j/-runs/é";

    fn cells() -> Vec<Cell> {
        let cell =
            |id: &str| Cell { id: id.repeat(16), arm: "grpo".into(), seed: 0, tries: None, layer: None, settings: Vec::new() };
        vec![cell("0"), cell("a")]
    }

    fn place(base: &str) -> Place {
        Place {
            name: "it's".into(),
            program: format!("{base}/ascribe"),
            base: base.into(),
            folder: format!("{base}/-runs/é"),
            logs: format!("{base}/-runs/é/logs"),
            slurm: format!("{base}/-runs/é/slurm").into(),
        }
    }

    fn how() -> Slurm {
        Slurm {
            program: "/opt/ascribe".into(),
            base: "/home/me".into(),
            jobs: Some(4),
            retry: true,
            options: vec!["--partition=gpu".into(), "--comment=it's".into()],
            after_tuning: false,
        }
    }

    #[test]
    fn an_array_has_one_cell_per_task() {
        let place = Place { program: "/opt/ascribe".into(), ..place("/home/o'ne two$x %j") };
        let cells = cells();
        let text = array(&place, &how(), &cells.iter().collect::<Vec<_>>());
        let expected = r#"#!/bin/sh
#SBATCH --array=0-1%4
#SBATCH --requeue
#SBATCH --signal=B:TERM@120
#SBATCH --open-mode=append
#SBATCH --partition=gpu
#SBATCH --comment=it's
# One cell per task. The cell takes the shell's place, and with it the signal to stop: it saves, and requeues its task.
cd '/home/o'\''ne two$x %j' || exit 1
set -- \
  0000000000000000 \
  aaaaaaaaaaaaaaaa
shift "$SLURM_ARRAY_TASK_ID"
exec '/opt/ascribe' grid cell '/home/o'\''ne two$x %j/-runs/é' "$1" --threads "${SLURM_CPUS_PER_TASK:-1}" --requeue >>'/home/o'\''ne two$x %j/-runs/é/logs'/"$1".txt 2>&1
"#;
        assert_eq!(text, expected);
        assert!(array(&place, &Slurm { jobs: None, ..how() }, &[&cells[0]]).contains("\n#SBATCH --array=0-0\n"));
    }

    #[test]
    fn what_comes_after_an_array_has_its_options() {
        let place = place("/home/me");
        let text = single(&place, &how(), JobKind::Next, &next_words(&place, &how()));
        let expected = r#"#!/bin/sh
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --partition=gpu
#SBATCH --comment=it's
cd '/home/me' || exit 1
exec '/home/me/ascribe' 'grid' 'resume' '/home/me/-runs/é' '--launcher' 'slurm' '--after-tuning' '--jobs=4' '--retry' '--slurm=--partition=gpu' '--slurm=--comment=it'\''s'
"#;
        assert_eq!(text, expected);
        let report = single(&place, &how(), JobKind::Report, &["grid".into()]);
        assert!(report.contains("\n#SBATCH --requeue\n") && report.ends_with("exec '/home/me/ascribe' 'grid'\n"), "{report}");
    }

    #[test]
    fn what_would_have_to_be_quoted_is_told_as_words() {
        let after = vec!["7".into(), "9".into()];
        let batch = Batch { kind: JobKind::Cells, cells: 2, name: "cells".into(), number: "%A_%a", after, script: String::new() };
        let words = place("/home/o'ne two$x %j").words(&batch, Path::new("/s.sh"));
        let expected = [
            "--parsable",
            "--job-name=it's cells",
            "--chdir=/home/o'ne two$x %j",
            "--output=/home/o'ne two$x %%j/-runs/é/slurm/cells-%A_%a.txt",
            "--dependency=afterany:7:9",
            "/s.sh",
        ];
        assert_eq!(words, expected);
        assert_eq!(output(Path::new(r"/a\b/cells-"), "%j"), "/dev/null");
    }

    /// A shell gives every word on as it was, wherever the grid lies.
    #[cfg(unix)]
    #[test]
    fn a_script_survives_a_shell() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join(&FOLDER[1..]);
        let place = place(base.to_str().expect("UTF-8"));
        fs::create_dir_all(&place.logs).expect("made");
        fs::create_dir_all(&place.slurm).expect("made");
        fs::write(&place.program, "#!/bin/sh\npwd\nprintf '<%s>' \"$@\"\n").expect("written");
        fs::set_permissions(&place.program, fs::Permissions::from_mode(0o755)).expect("runnable");
        let run = |text: &str| {
            let script = place.slurm.join("x.sh");
            fs::write(&script, text).expect("written");
            let mut command = Command::new("sh");
            command.arg(&script).env("SLURM_ARRAY_TASK_ID", "1").env("SLURM_CPUS_PER_TASK", "3");
            let out = command.output().expect("run");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).expect("UTF-8")
        };
        let cells = cells();
        assert_eq!(run(&array(&place, &how(), &cells.iter().collect::<Vec<_>>())), "");
        let log = fs::read_to_string(Path::new(&place.logs).join(format!("{}.txt", cells[1].id))).expect("a log");
        let Place { base, folder, .. } = &place;
        assert_eq!(log, format!("{base}\n<grid><cell><{folder}><{}><--threads><3><--requeue>", cells[1].id));
        let said = run(&single(&place, &how(), JobKind::Next, &next_words(&place, &how())));
        let options = "<--jobs=4><--retry><--slurm=--partition=gpu><--slurm=--comment=it's>";
        assert_eq!(said, format!("{base}\n<grid><resume><{folder}><--launcher><slurm><--after-tuning>{options}"));
    }

    #[test]
    fn options_are_one_line_and_leave_the_chain_alone() {
        for good in
            ["--partition=gpu", "--mem 4G", "-p gpu", "-pgpu", "--gres=gpu:1 --mem=4G", "--signal=B:TERM@600", "--exclusive"]
        {
            assert_eq!(check_option(good).as_deref(), Ok(good));
        }
        for (bad, why) in [
            ("", "as sbatch takes it"),
            ("gpu", "as sbatch takes it"),
            ("-", "as sbatch takes it"),
            ("--mem=4G\nrm -r x", "control character"),
            ("--array=0-9", "`--array` is set by Ascribe"),
            ("--arr=0-9", "`--arr` is set by Ascribe"),
            ("-a0-9", "`-a` is set by Ascribe"),
            ("-ä", ""),
            ("--dependency afterok:1", "`--dependency` is set by Ascribe"),
            ("--signal=USR1@60", "--signal=B:TERM@SECONDS"),
        ] {
            match check_option(bad) {
                Err(said) => assert!(said.contains(why), "{bad}: {said}"),
                // Not ours to judge: sbatch says so.
                Ok(_) => assert_eq!(why, "", "{bad}"),
            }
        }
    }
}
