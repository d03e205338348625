use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::geteuid,
};

use super::*;
use crate::attach::user::tests::somebody;

fn spawn(argv: &[&str]) -> Result<Held, SpawnError> {
    let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
    let env: Vec<_> = std::env::vars_os().collect();
    Held::spawn(&argv, &env, None)
}

fn run(argv: &[&str]) -> i32 {
    let mut held = spawn(argv).unwrap();
    held.release().unwrap();
    exit_code(held.wait().unwrap())
}

fn error_of(result: Result<Held, SpawnError>) -> String {
    match result {
        Ok(mut held) => held.release().expect_err("nothing to execute").to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn exit_codes_and_signals_are_the_commands_own() {
    assert_eq!(run(&["true"]), 0);
    assert_eq!(run(&["sh", "-c", "exit 7"]), 7);
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]), 128 + 9);
    assert_eq!(run(&["/bin/sh", "-c", "kill -SEGV $$"]), 128 + 11);
}

#[test]
fn the_command_does_nothing_before_it_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let mut held = spawn(&["touch", mark.to_str().unwrap()]).unwrap();
    sleep(Duration::from_millis(100));
    assert_eq!(held.try_wait().unwrap(), None);
    assert!(!mark.exists());
    // Still our own program: the exec has not happened.
    let exe = |pid| fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(exe(held.pid()), exe(std::process::id()));

    held.release().unwrap();
    let mut ended = [PollFd::new(held.pidfd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut ended, PollTimeout::from(10_000_u16)).unwrap(), 1, "the pidfd tells when it has ended");
    assert_eq!(held.try_wait().unwrap().map(exit_code), Some(0));
    assert_eq!(held.wait().unwrap().code(), Some(0), "asking again gives the same");
    assert!(mark.exists());
}

#[test]
fn the_command_gets_its_arguments_environment_and_default_signals() {
    let argv: Vec<OsString> =
        ["/bin/sh", "-c", r#"test "$#$1$A" = "1x yb c" -a -z "$HOME""#, "sh", "x y"].map(OsString::from).into();
    let mut held = Held::spawn(&argv, &[("A".into(), "b c".into())], None).unwrap();
    held.release().unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(0));
    // The Rust runtime ignores SIGPIPE; a command must not inherit that (bits as in signal(7), SIGPIPE is 13).
    assert_eq!(
        run(&[
            "sh",
            "-c",
            "set -- $(grep -E '^Sig(Blk|Ign)' /proc/self/status); test $((0x$2)) = 0 -a $((0x$4 >> 12 & 1)) = 0"
        ]),
        0
    );
}

#[test]
fn a_signal_reaches_the_command() {
    let mut held = spawn(&["sleep", "100"]).unwrap();
    held.release().unwrap();
    held.signal(Signal::SIGTERM).unwrap();
    assert_eq!(exit_code(held.wait().unwrap()), 128 + 15);
    assert!(held.signal(Signal::SIGTERM).is_err());
}

/// Makes a program. Another process writes it: a test beside this one may fork at any time, and its child would hold a
/// descriptor of ours open for writing, which makes an exec fail (`ETXTBSY`).
fn program(path: &Path, content: &[u8], mode: u32) {
    let draft = path.with_extension("draft");
    fs::write(&draft, content).unwrap();
    assert!(std::process::Command::new("cp").arg(&draft).arg(path).status().unwrap().success());
    fs::remove_file(draft).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_cannot_be_executed_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8], mode| {
        let path = dir.path().join(name);
        program(&path, content, mode);
        path.to_str().unwrap().to_owned()
    };
    let script = file("script", b"#! /no/such/python3 -u\nprint()\n", 0o755);
    let text = file("text", b"just text\n", 0o755);
    let plain = file("plain", b"#!/bin/sh\n", 0o644);
    let missing = dir.path().join("missing");
    let missing = missing.to_str().unwrap();

    assert_eq!(error_of(spawn(&[])), "no command given");
    assert_eq!(error_of(spawn(&["no-such-server"])), "no executable named no-such-server in PATH");
    assert_eq!(error_of(spawn(&[missing])), format!("{missing}: no such file"));
    assert_eq!(error_of(spawn(&[&script])), format!("{script}: its interpreter /no/such/python3 does not exist"));
    let neither = "neither a program for this machine nor a script with a #! line";
    assert_eq!(error_of(spawn(&[&text])), format!("{text}: {neither}"));
    assert_eq!(error_of(spawn(&[&plain])), format!("{plain}: not executable by this user"));
    let directory = dir.path().to_str().unwrap();
    assert_eq!(error_of(spawn(&[directory])), format!("{directory}: not executable by this user"));
    assert!(matches!(spawn(&["a\0b"]), Err(SpawnError::Nul)));
}

#[test]
fn path_is_searched_in_order_and_what_is_not_executable_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    for (place, mode, code) in [("a", 0o644, 1), ("b", 0o755, 2), ("c", 0o755, 3)] {
        fs::create_dir(dir.path().join(place)).unwrap();
        program(&dir.path().join(place).join("server"), format!("#!/bin/sh\nexit {code}\n").as_bytes(), mode);
    }
    let path = std::env::join_paths(["a", "b", "c"].map(|place| dir.path().join(place))).unwrap();
    let mut held = Held::spawn(&["server".into()], &[("PATH".into(), path)], None).unwrap();
    held.release().unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(2));
}

#[test]
fn the_command_runs_as_the_invoking_user() {
    if !geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let somebody = somebody();
    let check = format!("test $(id -u) = {} -a $(id -g) = {}", somebody.uid, somebody.gid);
    let argv: Vec<OsString> = ["sh", "-c", &check].map(OsString::from).into();
    let env = somebody.environment(std::env::vars_os());
    let mut held = Held::spawn(&argv, &env, Some(&somebody)).unwrap();
    held.release().unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(0));

    // What only root may execute is refused while the command is still held.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(file.path(), Permissions::from_mode(0o700)).unwrap();
    let refused = Held::spawn(&[file.path().into()], &env, Some(&somebody));
    assert!(matches!(refused, Err(SpawnError::NotExecutable(_))), "{refused:?}");
}

#[test]
fn a_command_killed_while_held_is_an_error_and_one_not_released_ends() {
    let mut held = spawn(&["true"]).unwrap();
    // Not SIGINT, which whoever runs this in the background may have it ignore.
    held.signal(Signal::SIGTERM).unwrap();
    held.wait().unwrap();
    assert!(matches!(held.release(), Err(SpawnError::Ended(143))));

    let held = spawn(&["true"]).unwrap();
    let pid = held.pid();
    drop(held);
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "ended and waited for");
}

#[test]
fn the_command_does_not_run_when_the_tracer_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let mut tracer = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "attach::spawn::tests::tracer_to_be_killed"])
        .env("MARK", &mark)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("held ")?.1.to_owned())).unwrap();
    let held = format!("/proc/{pid}/stat");
    assert!(Path::new(&held).exists());
    tracer.kill().unwrap();
    tracer.wait().unwrap();

    let deadline = Instant::now() + Duration::from_secs(10);
    // Whoever inherits the orphan may be slow to wait for it: a zombie has ended too.
    while fs::read_to_string(&held).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < deadline, "the held child outlives the tracer");
        sleep(Duration::from_millis(5));
    }
    assert!(!mark.exists());
}

#[test]
#[ignore = "the other half of the test above, a process of its own"]
fn tracer_to_be_killed() {
    let Some(mark) = std::env::var_os("MARK") else { return };
    let held = spawn(&["touch", mark.to_str().unwrap()]).unwrap();
    println!("held {}", held.pid());
    sleep(Duration::from_secs(60));
}
