//! Who the target runs as, whose the files are, and what happens without rights.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, book, exact, goes_on, held_at_end, vramtrace, wait_until};
use live_tests::sim::{Config, Sim};
use nix::sys::signal::Signal;

const MIB: u64 = 1 << 20;
/// An account of the tests' own, in a passwd of their own.
const TESTER: u32 = 12_345;
/// Its further group.
const TESTERS: u32 = 12_346;
/// `nobody`.
const NOBODY: u32 = 65_534;

/// A simulation with a directory that belongs to `uid`, and the tracer where every user can execute it.
struct Place {
    sim: Sim,
    tracer: PathBuf,
    home: PathBuf,
    file: PathBuf,
}

fn place(uid: u32) -> Result<Place> {
    let sim = Sim::start(Config::default())?;
    let (tracer, home) = (sim.scratch().join("vramtrace"), sim.scratch().join("home"));
    fs::copy(vramtrace()?, &tracer)?;
    fs::set_permissions(&tracer, fs::Permissions::from_mode(0o755))?;
    fs::copy(sim.program("server"), sim.scratch().join("server"))?;
    let mut sim = sim;
    sim.own_libraries()?;
    fs::create_dir(&home)?;
    chown(&home, Some(uid), Some(uid))?;
    let file = home.join("run.vrt");
    Ok(Place { sim, tracer, home, file })
}

impl Place {
    /// A command with the simulation's environment.
    fn command(&self, program: &str) -> Result<Command> {
        self.sim.command(program)
    }

    /// `sudo vramtrace run …` as sudo runs it, for an account that only this command's mount namespace knows.
    fn sudo(&self, options: &str, command: &str) -> Result<Command> {
        let (passwd, group) = (self.sim.scratch().join("passwd"), self.sim.scratch().join("group"));
        let line = format!("tester:x:{TESTER}:{TESTER}::{}:/bin/sh\n", self.home.display());
        fs::write(&passwd, fs::read_to_string("/etc/passwd")? + &line)?;
        let lines = format!("tester:x:{TESTER}:\ntesters:x:{TESTERS}:tester\n");
        fs::write(&group, fs::read_to_string("/etc/group")? + &lines)?;
        let (passwd, group, tracer) = (passwd.display(), group.display(), self.tracer.display());
        let text = format!(
            "mount --bind {passwd} /etc/passwd; mount --bind {group} /etc/group; \
             exec {tracer} run {options} -o {} -- {command}",
            self.file.display()
        );
        let mut sudo = self.command("/usr/bin/unshare")?;
        sudo.args(["--mount", "sh", "-e", "-c", &text]);
        sudo.envs([("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root"), ("SUDO_USER", "tester")]);
        sudo.envs([("SUDO_UID", TESTER.to_string()), ("SUDO_GID", TESTER.to_string())]).env("SUDO_COMMAND", "x");
        Ok(sudo)
    }

    /// The tracer as `nobody`, with some capabilities.
    fn with(&self, capabilities: &[&str]) -> Result<Command> {
        let list = capabilities.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(",");
        let mut command = self.command("/usr/bin/setpriv")?;
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if !list.is_empty() {
            command.args(["--inh-caps", &list, "--ambient-caps", &list]);
        }
        command.arg(&self.tracer);
        Ok(command)
    }
}

/// What tracing takes.
const NEEDED: [&str; 3] = ["bpf", "perfmon", "sys_ptrace"];

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn under_sudo_the_command_is_the_users() -> Result<()> {
    let place = place(TESTER)?;
    let print = "sh -c 'id -u; id -g; id -G; echo $HOME; echo $USER $LOGNAME; env | grep -c ^SUDO_; touch $HOME/mark'";
    let output = place.sudo("", print)?.output()?;
    let (said, errors) = text(&output);
    let home = place.home.display();
    let want = format!("{TESTER}\n{TESTER}\n{TESTER} {TESTERS}\n{home}\ntester tester\n0\n");
    ensure!(said == want, "{said}{errors}");
    for file in [place.home.join("mark"), place.file.clone()] {
        let meta = fs::metadata(&file)?;
        ensure!((meta.uid(), meta.gid()) == (TESTER, TESTER), "{} belongs to {}", file.display(), meta.uid());
    }
    ensure!(fs::metadata(&place.file)?.mode() & 0o777 == 0o600);
    Ok(())
}

#[test]
fn under_sudo_a_server_is_traced_exactly() -> Result<()> {
    let place = place(TESTER)?;
    let mut run = Talk::server(place.sudo("", &place.sim.scratch().join("server").to_string_lossy())?)?;
    run.order("alloc 10")?;
    let pid = run.server_pid();
    ensure!(fs::metadata(format!("/proc/{pid}"))?.uid() == TESTER);
    let (status, _, errors) = run.finish()?;
    ensure!(status.success(), "{status}: {errors}");
    let book = book(&place.file)?;
    exact(&book, &place.sim.settled()?, pid)?;
    ensure!(book.libraries.iter().all(|library| !library.late));
    Ok(())
}

#[test]
fn under_sudo_the_command_can_be_roots() -> Result<()> {
    let place = place(TESTER)?;
    let output = place.sudo("--as-root", "id -u")?.output()?;
    ensure!(text(&output).0 == "0\n", "{:?}", text(&output));
    ensure!(fs::metadata(&place.file)?.uid() == TESTER, "the trace is the user's all the same");
    Ok(())
}

/// Refused with exit code 1 and one line, before the command runs.
fn refused(mut command: Command, place: &Place) -> Result<String> {
    let mark = place.home.join("mark");
    command.args(["run", "-o"]).arg(&place.file).arg("--").arg("touch").arg(&mark);
    let output = command.output()?;
    let (said, errors) = text(&output);
    ensure!(output.status.code() == Some(1) && said.is_empty(), "{}: {said}", output.status);
    ensure!(errors.starts_with("vramtrace: ") && errors.lines().count() == 1, "{errors}");
    ensure!(!mark.exists() && !place.file.exists(), "{errors}");
    Ok(errors)
}

#[test]
fn without_rights_the_error_says_what_to_type() -> Result<()> {
    let place = place(NOBODY)?;
    let told = refused(place.with(&[])?, &place)?;
    ensure!(told.contains("CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE are missing"), "{told}");
    ensure!(told.contains(&format!("Type: sudo {} run -o", place.tracer.display())), "{told}");
    for missing in NEEDED {
        let rest: Vec<_> = NEEDED.into_iter().filter(|name| *name != missing).collect();
        let told = refused(place.with(&rest)?, &place)?;
        ensure!(told.contains(&format!("CAP_{} is missing", missing.to_uppercase())), "{told}");
    }
    Ok(())
}

#[test]
fn in_foreign_namespaces_the_error_says_so() -> Result<()> {
    let place = place(NOBODY)?;
    let within = |options: &[&str]| -> Result<Command> {
        let mut command = place.command("/usr/bin/unshare")?;
        command.args(options).arg(&place.tracer);
        Ok(command)
    };
    let told = refused(within(&["--user", "--map-root-user"])?, &place)?;
    ensure!(told.contains("user namespace"), "{told}");
    let told = refused(within(&["--pid", "--fork", "--mount-proc"])?, &place)?;
    ensure!(told.contains("PID namespace"), "{told}");
    Ok(())
}

#[test]
fn three_capabilities_are_enough_to_run() -> Result<()> {
    let place = place(NOBODY)?;
    let mut command = place.with(&NEEDED)?;
    command.args(["run", "-o"]).arg(&place.file).arg("--").arg(place.sim.scratch().join("server"));
    let mut run = Talk::server(command)?;
    run.order("alloc 10")?;
    let pid = run.server_pid();
    let (status, _, errors) = run.finish()?;
    ensure!(status.success(), "{status}: {errors}");
    let book = book(&place.file)?;
    exact(&book, &place.sim.settled()?, pid)?;
    ensure!(!book.libraries.is_empty() && book.libraries.iter().all(|library| !library.late), "{:?}", book.notices);
    ensure!(fs::metadata(&place.file)?.uid() == NOBODY);
    Ok(())
}

/// Who may not continue a process must not stop it: another user's is probed while it runs.
#[test]
fn another_users_process_is_never_stopped() -> Result<()> {
    let place = place(NOBODY)?;
    let mut server = Talk::server(place.command(&place.sim.scratch().join("server").to_string_lossy())?)?;
    let pid = server.server_pid();
    let mut command = place.with(&NEEDED)?;
    command.args(["attach", "--pid", &pid.to_string(), "-o"]).arg(&place.file);
    let mut tracer = Talk::start(command)?;
    let mut said = String::new();
    wait_until("the tracer", || {
        said.push_str(&tracer.errors());
        Ok(said.contains("Ctrl-C ends it"))
    })
    .with_context(|| said.clone())?;
    server.order("alloc 10")?;
    ensure!(goes_on(pid));
    // Long enough for the probes to be in.
    sleep(Duration::from_millis(500));
    server.order("alloc 20")?;
    sleep(Duration::from_millis(500));
    tracer.signal(Signal::SIGINT)?;
    ensure!(tracer.wait()?.success(), "{}", tracer.errors());
    let book = book(&place.file)?;
    ensure!(book.libraries.iter().any(|library| library.late && library.path.ends_with("libcuda.so.1")));
    let smi = place.sim.smi()?.processes[&(0, pid)];
    ensure!(held_at_end(&book, pid) == smi && smi > 30 * MIB, "{} of {smi}", held_at_end(&book, pid));
    Ok(())
}

/// Where the file would be somebody else's.
#[test]
fn a_place_that_cannot_be_written_is_one_error() -> Result<()> {
    let place = place(NOBODY)?;
    let locked = place.sim.scratch().join("locked");
    fs::create_dir(&locked)?;
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700))?;
    let file = locked.join("run.vrt");
    let mut command = place.with(&NEEDED)?;
    command.args(["run", "-o"]).arg(&file).args(["--", "touch"]).arg(place.home.join("mark"));
    let output = command.output()?;
    let errors = text(&output).1;
    let want = format!("vramtrace: {}: Permission denied (os error 13)\n", file.display());
    ensure!(output.status.code() == Some(1) && errors == want, "{errors}");
    ensure!(!Path::new(&place.home.join("mark")).exists());
    Ok(())
}
