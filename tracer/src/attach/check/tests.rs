use std::path::PathBuf;

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;
use crate::attach::host::{Root, tree::Tree};

fn typed(exe: &str, args: &[&str]) -> Typed {
    Typed { exe: PathBuf::from(exe), args: args.iter().map(|arg| (*arg).to_owned()).collect() }
}

fn check(tree: &Tree) -> Check {
    Check::new(&tree.read(), None, &typed("/usr/local/bin/vramtrace", &["check"]))
}

/// A process id that no process has: the kernel's own limit (`PID_MAX_LIMIT`). Libraries are looked up in the real `/proc`.
const GONE: u32 = 4_194_304;

/// The message of a refused start.
fn refusal(tree: &Tree) -> String {
    let run = typed("/usr/local/bin/vramtrace", &["run", "-o", "a b.vrt", "--", "python", "-c", "print('x')"]);
    preflight_on(&tree.read(), &run).unwrap_err().to_string()
}

#[test]
fn a_server_with_all_of_it() {
    let check = check(&Tree::server());
    assert_eq!(check.worst(), Status::Ok);
    assert_snapshot!(check);
}

#[test]
fn an_ordinary_user_on_an_old_kernel() {
    let tree = Tree::server()
        .rights(1000, 0)
        .file("proc/sys/kernel/osrelease", "5.15.0-100-generic\n")
        .without("proc/kallsyms")
        .without("sys/kernel/btf/nvidia");
    assert_snapshot!(check(&tree));
}

#[test]
fn a_locked_down_container_without_a_driver() {
    let tree = Tree::server()
        .rights(0, 0xa804_25fb)
        .link("proc/self/ns/pid", "pid:[4026532448]")
        .link("proc/self/ns/user", "user:[4026532447]")
        .file("sys/kernel/security/lockdown", "none integrity [confidentiality]\n")
        .file("proc/meminfo", "MemAvailable: 1024 kB\n")
        .without("proc/driver")
        .without("sys/module");
    assert_snapshot!(check(&tree));
}

#[test]
fn a_driver_that_nobody_checked() {
    let tree = Tree::server().file("proc/driver/nvidia/version", "NVRM version: Kernel Module  610.11\n");
    let lines = check(&tree.without("sys/module/nvidia_uvm").without("proc/driver/nvidia/gpus")).lines;
    let driver: Vec<_> = lines.iter().filter(|line| line.group == "driver").map(|line| line.status).collect();
    assert_eq!(driver, [Status::Degraded; 3]);
}

#[test]
fn a_user_is_told_the_capabilities_and_the_line() {
    assert_snapshot!(refusal(&Tree::server().rights(1000, 0)));
}

#[test]
fn one_lacking_capability_is_named_alone() {
    // CAP_BPF and CAP_PERFMON.
    assert_snapshot!(refusal(&Tree::server().rights(1000, 3 << 38)));
}

#[test]
fn perf_probes_want_sys_admin_and_no_file_capabilities_are_offered() {
    let old = Tree::server().without("proc/kallsyms").file("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n");
    assert_snapshot!(refusal(&old.rights(1000, (3 << 38) | (1 << 19))));
}

#[test]
fn root_in_a_container_is_not_sent_to_sudo() {
    assert_snapshot!(refusal(&Tree::server().rights(0, 0)));
}

#[test]
fn a_user_namespace_is_named() {
    assert_snapshot!(refusal(&Tree::server().link("proc/self/ns/user", "user:[4026532447]")));
}

#[test]
fn a_kernel_before_attach_cookies_is_told_the_version_that_has_them() {
    let old = Tree::server().without("proc/kallsyms").file("proc/sys/kernel/osrelease", "5.10.0-46-amd64\n");
    let line = "attach cookies: the one program behind all probes cannot tell them apart. Needed: Linux 5.15 or newer";
    assert_eq!(refusal(&old), line);
}

#[test]
fn a_kernel_without_types_is_refused() {
    assert_snapshot!(refusal(&Tree::server().without("sys/kernel/btf")));
}

#[test]
fn a_missing_driver_does_not_stop_a_start() {
    let tree = Tree::server().without("proc/driver").without("sys/module");
    preflight_on(&tree.read(), &Typed::here()).unwrap();
}

#[test]
fn a_program_outside_sudos_path_is_named_in_full() {
    let line = typed("/home/ada/.cargo/bin/vramtrace", &["attach", "--match", "sglang::.*", ""]).with_sudo();
    assert_eq!(line, "sudo /home/ada/.cargo/bin/vramtrace attach --match 'sglang::.*' ''");
}

#[test]
fn a_target_with_libraries() {
    let tree = Tree::server().file("proc/4194304/comm", "python3\n").file("proc/4194304/maps", "");
    let mut target = Target::of_pid(&tree.root(), GONE).unwrap();
    assert!(target.lines(&tree.read(), &Typed::here()).iter().any(|line| line.told.starts_with("none yet")));
    let library = |path: &str, probes| TargetLibrary { path: PathBuf::from(path), probes };
    target.libraries = vec![
        library("/usr/lib/x86_64-linux-gnu/libcuda.so.1", Ok((120, 3))),
        library("/opt/venv/lib/libcudart.so.12", Ok((40, 0))),
        library("/opt/odd/libnccl.so.2", Ok((0, 6))),
        library("/opt/odd/libc10.so", Err("/opt/odd/libc10.so is no ELF file".to_owned())),
    ];
    let packages = [("sglang", "0.5.17"), ("torch", "9.0.0")];
    target.packages = packages.map(|(package, version)| (package.to_owned(), version.to_owned())).to_vec();
    let lines: Vec<_> = target.lines(&tree.read(), &Typed::here());
    assert_snapshot!(Check { lines });
}

#[test]
fn an_unreadable_target_is_missing_with_the_line_to_type() {
    let tree = Tree::server().rights(1000, 0).file("proc/4194304/comm", "python3\n");
    let target = Target::of_pid(&tree.root(), GONE).unwrap();
    let line = &target.lines(&tree.read(), &typed("/usr/bin/vramtrace", &["check", "--pid", "4194304"]))[0];
    assert_eq!((line.status, line.fix.as_deref()), (Status::Missing, Some("sudo vramtrace check --pid 4194304")));
}

#[test]
fn targets_that_are_not_there() {
    let gone = Target::of_pid(&Tree::server().root(), GONE).unwrap_err().to_string();
    assert_eq!(gone, "no process 4194304: it has ended, or lives in another PID namespace");
    let command = |program: &str| Target::of_command(program.as_ref());
    assert!(command("no-such-program-here").is_err() && command("/etc/passwd").is_err());
    assert!(command("sh").unwrap().name.ends_with("/sh"));
}

#[test]
fn this_process_can_be_a_target() {
    let me = Target::of_pid(&Root::default(), std::process::id()).unwrap();
    assert!(me.readable && !me.own_files);
}

proptest! {
    // Two of them start a shell or lay out a tree each time.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn wrapping_keeps_every_word_and_the_width(words in prop::collection::vec("[a-zé×]{1,12}", 0..40)) {
        let lines = wrap(&words.join(" "), 20);
        prop_assert!(lines.iter().all(|line| line.chars().count() <= 20));
        prop_assert_eq!(lines.join(" "), words.join(" "));
    }

    #[test]
    fn a_shell_reads_a_quoted_word_back(word in "[^\0]{0,20}") {
        let output = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {}", quote(&word))).output().unwrap();
        prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }

    #[test]
    fn odd_facts_never_panic(text in "\\PC{0,60}", lines in prop::collection::vec("[A-Za-z:.\\t 0-9]{0,20}", 0..5)) {
        let lines = lines.join("\n");
        let tree = Tree::server().file("proc/driver/nvidia/version", &text).file("proc/kallsyms", &lines)
            .file("proc/meminfo", &lines).file("proc/sys/kernel/osrelease", &text);
        let _ = check(&tree).to_string();
    }
}
