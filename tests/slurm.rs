//! Grids on Slurm: its daemons on this machine, where they can be started, and the real binary.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ascribe_tests::grids::{Place, experiment, in_the_middle, wait_until};
use ascribe_tests::said;

/// A name that a shell, a script's directives and Slurm's file names would each read otherwise.
const ODD: &str = "o'ne two$x %j é";
const RUN: [&str; 5] = ["grid", "run", "study.toml", "--launcher", "slurm"];

/// One controller and one node on this machine. They end with it.
struct Cluster {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut ended = self.command("scancel");
        // Processes of tasks belong to a daemon of their own, which ends with its job.
        if ended.args(["--user", &user()]).output().is_ok_and(|out| out.status.success()) {
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(30) && self.queue().is_ok_and(|queue| !queue.is_empty()) {
                sleep(Duration::from_millis(200));
            }
        }
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Cluster {
    /// One that is not started.
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), daemons: Vec::new() }
    }

    /// Starts it, or says why that cannot be.
    fn start(&mut self) -> Result<(), String> {
        let at = self.folder.path().to_path_buf();
        for folder in ["state", "spool"] {
            fs::create_dir(at.join(folder)).map_err(|e| e.to_string())?;
        }
        let mut key = vec![0; 1024];
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key)).map_err(|e| e.to_string())?;
        fs::write(at.join("key"), key).map_err(|e| e.to_string())?;
        fs::set_permissions(at.join("key"), fs::Permissions::from_mode(0o600)).map_err(|e| e.to_string())?;
        let socket = || TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string());
        let port = |socket: &TcpListener| socket.local_addr().map(|address| address.port()).map_err(|e| e.to_string());
        let sockets = (socket()?, socket()?);
        let ports = (port(&sockets.0)?, port(&sockets.1)?);
        drop(sockets);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").map_err(|e| e.to_string())?;
        let host = host.trim().split('.').next().unwrap_or_default().to_string();
        let conf = configuration(&at.display().to_string(), &host, &user(), ports);
        fs::write(at.join("slurm.conf"), conf).map_err(|e| e.to_string())?;
        let of = |name: &str, value: &str| format!("--{name}={}/{value}", at.display());
        let munged = [
            "--foreground".to_string(),
            "--force".into(),
            of("socket", "munge.socket"),
            of("key-file", "key"),
            of("pid-file", "munged.pid"),
            of("seed-file", "munged.seed"),
            of("log-file", "munged.log"),
        ];
        self.daemon("munged", &munged)?;
        let by = Instant::now();
        while !at.join("munge.socket").exists() && by.elapsed() < Duration::from_secs(30) {
            sleep(Duration::from_millis(50));
        }
        self.daemon("slurmctld", &["-D".into()])?;
        self.daemon("slurmd", &["-D".into()])?;
        let since = Instant::now();
        loop {
            let nodes = self.command("sinfo").args(["-h", "-o", "%T"]).output().map_err(|e| format!("sinfo: {e}"))?;
            if String::from_utf8_lossy(&nodes.stdout).trim() == "idle" {
                return Ok(());
            }
            let ended = self.daemons.iter_mut().any(|daemon| daemon.try_wait().is_ok_and(|status| status.is_some()));
            if ended || since.elapsed() > Duration::from_secs(60) {
                let logs = ["munged.said", "munged.log", "slurmctld.log", "slurmd.log", "slurmctld.said", "slurmd.said"];
                let logs: Vec<String> = logs.iter().map(|name| end_of(&at.join(name))).collect();
                return Err(format!("no node became idle ({}): {}", said(&nodes).trim(), logs.join(" / ")));
            }
            sleep(Duration::from_millis(200));
        }
    }

    fn daemon(&mut self, name: &str, words: &[String]) -> Result<(), String> {
        let log = File::create(self.folder.path().join(format!("{name}.said"))).map_err(|e| e.to_string())?;
        let mut command = self.command(name);
        command.args(words).stdin(Stdio::null()).stdout(log.try_clone().map_err(|e| e.to_string())?).stderr(log);
        self.daemons.push(command.spawn().map_err(|e| format!("`{name}` cannot be started: {e}"))?);
        Ok(())
    }

    /// One of Slurm's programs; daemons are not in everybody's `PATH`.
    fn command(&self, name: &str) -> Command {
        let found = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(|folder| Path::new(folder).join(name));
        let mut command = Command::new(found.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from(name)));
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    fn ascribe(&self, place: &Place, words: &[&str]) -> Output {
        place.command(words).env("SLURM_CONF", self.folder.path().join("slurm.conf")).output().unwrap()
    }

    fn ask(&self, name: &str, words: &[&str]) -> String {
        let out = self.command(name).args(words).output().unwrap();
        assert!(out.status.success(), "{name} {words:?}: {}{}", said(&out), end_of(&self.folder.path().join("slurmctld.log")));
        said(&out)
    }

    /// Number and state of every job, and of every task of an array.
    fn queue(&self) -> Result<Vec<String>, String> {
        let out = self.command("squeue").args(["-h", "-r", "-o", "%i %T"]).output().map_err(|e| e.to_string())?;
        if !out.status.success() {
            return Err(said(&out));
        }
        Ok(String::from_utf8_lossy(&out.stdout).lines().map(str::to_string).collect())
    }

    fn wait_for_the_last_job(&self) {
        wait_until("the end of the queue", || {
            sleep(Duration::from_millis(300));
            self.queue().unwrap().is_empty()
        });
    }
}

fn configuration(at: &str, host: &str, user: &str, (controller, node): (u16, u16)) -> String {
    format!(
        "ClusterName=loop\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmUser={user}\n\
         SlurmdUser={user}\n\
         SlurmctldPort={controller}\n\
         SlurmdPort={node}\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={at}/munge.socket,cred_expire=5\n\
         StateSaveLocation={at}/state\n\
         SlurmdSpoolDir={at}/spool\n\
         SlurmctldPidFile={at}/slurmctld.pid\n\
         SlurmdPidFile={at}/slurmd.pid\n\
         SlurmctldLogFile={at}/slurmctld.log\n\
         SlurmdLogFile={at}/slurmd.log\n\
         SlurmdParameters=config_overrides\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SchedulerParameters=sched_interval=1,batch_sched_delay=0\n\
         ReturnToService=2\n\
         MpiDefault=none\n\
         KillWait=30\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n\
         PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP\n"
    )
}

fn user() -> String {
    let out = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().to_string()
}

fn end_of(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    format!("{}: {}", path.file_name().unwrap().to_string_lossy(), lines[lines.len().saturating_sub(4)..].join("; "))
}

/// How many cells have this word as their state.
fn states(status: &str, word: &str) -> usize {
    let cells = status.lines().skip(1).take_while(|line| !line.is_empty());
    cells.filter(|line| line.split_whitespace().any(|part| part == word)).count()
}

fn same(place: &Place, whole: &Place) {
    assert_eq!(place.results().keys().collect::<Vec<_>>(), whole.results().keys().collect::<Vec<_>>());
    for (path, bytes) in whole.results() {
        assert!(place.results()[&path] == bytes, "{} differs", path.display());
    }
}

/// What Slurm and the cells said, for whoever reads why a test failed.
fn words_of(place: &Place) -> String {
    let mut all = String::new();
    for folder in ["slurm", "logs", "failures"] {
        let entries = fs::read_dir(place.grid().join(folder)).into_iter().flatten();
        for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            all += &format!("--- {}\n{}\n", path.display(), fs::read_to_string(&path).unwrap_or_default());
        }
    }
    all
}

#[test]
#[ignore = "needs Slurm"]
fn grids_run_on_a_real_slurm() {
    let mut cluster = Cluster::new();
    match cluster.start() {
        Ok(()) => {
            println!("Slurm: {}", cluster.ask("sinfo", &["--version"]).trim());
            submitted_twice_every_cell_is_run_once(&cluster);
            asked_to_stop_a_cell_saves_and_is_requeued(&cluster);
            tuning_is_followed_by_what_it_chose(&cluster);
        }
        Err(why) => {
            println!("no Slurm could be started here: {why}\nwhat is tested instead: the script that would be submitted");
            a_script_is_written(&cluster);
        }
    }
}

fn submitted_twice_every_cell_is_run_once(cluster: &Cluster) {
    let broken = "[grid.arm.broken]\nestimator.command = { run = [\"false\"] }";
    let text = experiment(100, broken);
    let place = Place::named(ODD, &text);
    let options = ["--jobs", "2", "--slurm=--time=30", "--slurm", "--comment=\"two words\""];
    let first = said(&cluster.ascribe(&place, &[&RUN[..], &options].concat()));
    println!("{first}");
    for part in ["12 cells, 0 of them done", ": 12 cells; its script: ", ": writes the report after them", "ascribe grid status"]
    {
        assert!(first.contains(part), "{part:?} in\n{first}");
    }
    let second = said(&cluster.ascribe(&place, &RUN));
    assert!(second.contains("are still queued or run"), "{second}");
    cluster.wait_for_the_last_job();
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    println!("{status}");
    assert_eq!((states(&status, "done"), states(&status, "failed")), (9, 3), "{status}\n{}", words_of(&place));
    assert_eq!(place.starts(), [1; 12], "{}", words_of(&place));
    // By the last job.
    assert!(place.grid().join("report/scores.csv").exists(), "{}", words_of(&place));
    let whole = Place::new(&text);
    assert_eq!(whole.ascribe(&["grid", "run", "study.toml"]).status.code(), Some(1));
    same(&place, &whole);
    // What failed is tried again when that is asked, and only then.
    let again = said(&cluster.ascribe(&place, &RUN));
    assert!(again.contains("3 cells failed") && !again.contains("job "), "{again}");
    let again = said(&cluster.ascribe(&place, &["grid", "resume", "runs/study", "--launcher", "slurm", "--retry"]));
    assert!(again.contains(": 3 cells; its script: "), "{again}");
    cluster.wait_for_the_last_job();
    let mut starts = place.starts();
    starts.sort_unstable();
    assert_eq!(starts, [[1; 9].as_slice(), &[2; 3]].concat());
    same(&place, &whole);
}

fn asked_to_stop_a_cell_saves_and_is_requeued(cluster: &Cluster) {
    let text = experiment(1500, "").replace("seeds = 3", "seeds = 1").replace("controls.random = [\"grpo\"]", "");
    let place = Place::named(ODD, &text);
    let out = said(&cluster.ascribe(&place, &RUN));
    assert!(out.contains(": 2 cells"), "{out}");
    // Both at once: where tasks of the array still wait, scancel of Slurm 22.05 signals a task, and then fails and tries again.
    wait_until("both cells in the middle", || in_the_middle(&place) == 2);
    let running = cluster.ask("squeue", &["-h", "-r", "-t", "RUNNING", "-o", "%i"]);
    let [first, second] = running.lines().collect::<Vec<_>>()[..] else { panic!("not two tasks: {running}") };
    // As at the time limit: the batch shell alone is told.
    cluster.ask("scancel", &["--signal=TERM", "--batch", first]);
    // As at a preemption: Slurm ends it, and queues it again by itself.
    cluster.ask("scontrol", &["requeue", second]);
    cluster.wait_for_the_last_job();
    let logs = words_of(&place);
    for part in ["stopped, as asked\nits task is in the queue again", "stopped, as asked\nSlurm is ending its job"] {
        assert!(logs.contains(part), "{part:?} in\n{logs}");
    }
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    assert_eq!(states(&status, "done"), 2, "{status}\n{logs}");
    assert_eq!(place.starts(), [2, 2], "{logs}");
    let whole = Place::new(&text);
    assert!(whole.ascribe(&["grid", "run", "study.toml"]).status.success());
    same(&place, &whole);
}

fn tuning_is_followed_by_what_it_chose(cluster: &Cluster) {
    let text =
        experiment(60, "").replace("seeds = 3", "seeds = 1\ntune = { \"update.learning_rate\" = [0.05, 0.1] }\ntune_seeds = 1");
    let place = Place::named(ODD, &text);
    let out = said(&cluster.ascribe(&place, &RUN));
    assert!(out.contains(": 4 tuning runs; its script: ") && out.contains(": goes on after them"), "{out}");
    cluster.wait_for_the_last_job();
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    println!("{status}");
    assert_eq!(states(&status, "done"), 7, "{status}\n{}", words_of(&place));
    assert_eq!(place.starts(), [1; 7]);
    let whole = Place::new(&text);
    assert!(whole.ascribe(&["grid", "run", "study.toml"]).status.success());
    same(&place, &whole);
}

/// Without a node: has a shell and, where there is one, the real sbatch read the script.
fn a_script_is_written(cluster: &Cluster) {
    let place = Place::named(ODD, &experiment(100, ""));
    println!("{}", said(&cluster.ascribe(&place, &RUN)).trim());
    let script = place.grid().join("slurm/cells.sh");
    assert!(Command::new("sh").arg("-n").arg(&script).status().unwrap().success());
    println!("a shell reads the script");
    match cluster.command("sbatch").arg("--test-only").arg(&script).output() {
        Ok(out) => println!("sbatch --test-only: {}", said(&out).trim()),
        Err(e) => println!("sbatch --test-only: {e}"),
    }
}

/// A folder with an `sbatch` that does this.
fn with_sbatch(text: &str) -> (tempfile::TempDir, OsString) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("sbatch");
    fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().as_os_str().to_owned();
    (folder, path)
}

#[test]
fn where_slurm_is_missing_or_refuses_the_script_stays() {
    let place = Place::named(ODD, &experiment(20, ""));
    let script = place.grid().join("slurm/cells.sh");
    let empty = tempfile::tempdir().unwrap();
    let out = place.command(&RUN).env("PATH", empty.path()).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let part = "`sbatch` was not found: run this on a login node of a cluster with Slurm, or leave out --launcher";
    assert!(said(&out).contains(part), "{}", said(&out));
    assert!(Command::new("sh").arg("-n").arg(&script).status().unwrap().success());

    let (_folder, path) = with_sbatch("echo 'Invalid partition name specified' >&2; exit 1");
    let out = place.command(&[&RUN[..], &["--slurm=--partition=gpu"]].concat()).env("PATH", path).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    for part in ["`sbatch` refused", "Invalid partition name specified", "the script stays in `"] {
        assert!(said(&out).contains(part), "{part:?} in {}", said(&out));
    }
    assert!(fs::read_to_string(&script).unwrap().contains("\n#SBATCH --partition=gpu\n"));
    // Nobody ran anything, and nothing is thought to be queued.
    let status = said(&place.ascribe(&["grid", "status", "runs/study"]));
    assert_eq!(states(&status, "waiting"), 9, "{status}");
    assert!(!place.grid().join("slurm/jobs.json").exists());
}

#[test]
fn jobs_follow_each_other() {
    let tune = "seeds = 3\ntune = { \"update.learning_rate\" = [0.05, 0.1] }\ntune_seeds = 1";
    let place = Place::new(&experiment(20, "").replace("seeds = 3", tune));
    let (folder, path) = with_sbatch("printf '%s\\n' \"$@\" >>\"$SAID\"; echo '17;cluster'");
    let words = [&RUN[..], &["--jobs=2", "--retry", "--slurm=--mem=4G"]].concat();
    let out = place.command(&words).env("PATH", &path).env("SAID", folder.path().join("said")).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let told = fs::read_to_string(folder.path().join("said")).unwrap();
    let jobs: Vec<&str> =
        told.lines().filter(|word| word.starts_with("--job-name") || word.starts_with("--dependency")).collect();
    assert_eq!(jobs, ["--job-name=study tuning", "--job-name=study next", "--dependency=afterany:17"], "{told}");
    let next = fs::read_to_string(place.grid().join("slurm/next.sh")).unwrap();
    assert!(next.contains("'--after-tuning' '--jobs=2' '--retry' '--slurm=--mem=4G'"), "{next}");
    // Its runs did not come about: the job after them submits nothing again.
    let words = ["grid", "resume", "runs/study", "--launcher", "slurm", "--after-tuning"];
    let out = place.command(&words).env("PATH", &path).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("tuning is not over: 4 of its runs are neither done nor failed"), "{}", said(&out));
}

/// Slurm takes so many tasks to an array, and `--jobs` counts them all.
#[test]
fn many_cells_are_several_arrays() {
    let place = Place::new(&experiment(20, "").replace("seeds = 3", "seeds = 400"));
    let (folder, path) = with_sbatch("printf '%s\\n' \"$@\" >>\"$SAID\"; echo 17");
    let words = [&RUN[..], &["--jobs=2"]].concat();
    let out = place.command(&words).env("PATH", &path).env("SAID", folder.path().join("said")).output().unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let told = fs::read_to_string(folder.path().join("said")).unwrap();
    let jobs: Vec<&str> =
        told.lines().filter(|word| word.starts_with("--job-name") || word.starts_with("--dependency")).collect();
    let expected = [
        "--job-name=study cells",
        "--job-name=study cells-2",
        "--dependency=afterany:17",
        "--job-name=study report",
        "--dependency=afterany:17:17",
    ];
    assert_eq!(jobs, expected);
    let head = |name: &str| fs::read_to_string(place.grid().join("slurm").join(name)).unwrap();
    assert!(
        head("cells.sh").contains("\n#SBATCH --array=0-999%2\n") && head("cells-2.sh").contains("\n#SBATCH --array=0-199%2\n")
    );
}

#[test]
fn options_for_slurm_are_checked_before_anything_is_written() {
    let place = Place::new(&experiment(20, ""));
    for (words, part) in [
        (&["--launcher", "slurm", "--slurm=--array=0-9"][..], "`--array` is set by Ascribe"),
        (&["--launcher", "slurm", "--slurm=gpu"], "as sbatch takes it"),
        (&["--launcher", "slurm", "--slurm=--mem=1\nrm"], "control character"),
        (&["--launcher", "slurp"], "invalid value 'slurp'"),
        (&["--slurm=--mem=4G"], "--launcher"),
    ] {
        let out = place.ascribe(&[&["grid", "run", "study.toml"], words].concat());
        assert_eq!(out.status.code(), Some(2), "{}", said(&out));
        assert!(said(&out).contains(part), "{part:?} in {}", said(&out));
        assert!(!place.grid().exists());
    }
}
