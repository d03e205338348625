//! A tracer confined as container engines do it: it works, or says in one line what is missing and what gives it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use live_tests::live::vramtrace;

/// `vramtrace` in some namespaces, or with some rights.
fn within(wrapper: &[&str]) -> Result<Command> {
    let (program, arguments) = wrapper.split_first().unwrap_or((&"env", &[]));
    let mut command = Command::new(program);
    command.args(arguments).arg(vramtrace()?);
    Ok(command)
}

/// The one line with which `run` is refused; it must not have started its command.
fn refused(mut command: Command) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let (mark, file) = (directory.path().join("mark"), directory.path().join("run.vrt"));
    let output = command.args(["run", "-o"]).arg(&file).args(["--", "touch"]).arg(&mark).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1) && errors.lines().count() == 1, "{}: {errors}", output.status);
    ensure!(!mark.exists() && !file.exists(), "{errors}");
    Ok(errors)
}

/// What `check` says is missing, without the driver, which no machine for tests has.
fn missing(mut command: Command) -> Result<Vec<String>> {
    let output = command.arg("check").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("  missing") && !line.contains("NVIDIA driver"));
    Ok(lines.map(str::to_owned).collect())
}

/// Lets `command`'s program be refused a system call, as an engine's filter does (seccomp(2)).
fn without_call(command: &mut Command, number: libc::c_long) {
    let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // Load the number; if it is the one, give EPERM; else let it be.
    let program = [
        statement((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0, 0, 0),
        statement((libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, 0, 1, u32::try_from(number).unwrap_or(0)),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        statement((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let confine = move || {
        let mut program = program;
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: `filter` and what it points to outlive the call.
        let set = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: one system call on memory of its own.
    unsafe { command.pre_exec(confine) };
}

#[test]
fn a_pid_namespace_is_named_with_the_flag() -> Result<()> {
    // With the host's /proc still there, and with its own.
    for options in [&["unshare", "--pid", "--fork"][..], &["unshare", "--pid", "--fork", "--mount-proc"]] {
        let told = refused(within(options)?)?;
        ensure!(
            told.contains("PID namespace") && told.contains("--pid=host") && told.contains("hostPID: true"),
            "{told}"
        );
        let lines = missing(within(options)?)?;
        ensure!(lines.len() == 1 && lines[0].contains("PID namespace"), "{lines:?}");
    }
    Ok(())
}

#[test]
fn missing_capabilities_are_named_with_the_flags() -> Result<()> {
    let few = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+sys_chroot";
    // Docker's default set, in a PID namespace.
    let options = ["unshare", "--pid", "--fork", "setpriv", "--bounding-set", few, "--inh-caps", "-all"];
    let told = refused(within(&options)?)?;
    for part in ["CAP_BPF", "CAP_PERFMON", "--cap-add=BPF --cap-add=PERFMON --cap-add=SYS_PTRACE --pid=host", "hostPID"]
    {
        ensure!(told.contains(part), "{part}: {told}");
    }
    let lines = missing(within(&options)?)?;
    ensure!(
        lines.iter().any(|line| line.contains("CAP_BPF")) && lines.iter().any(|line| line.contains("PID")),
        "{lines:?}"
    );
    Ok(())
}

#[test]
fn a_filter_of_system_calls_is_named_with_the_flag() -> Result<()> {
    for (number, name) in [(libc::SYS_bpf, "bpf"), (libc::SYS_process_vm_readv, "process_vm_readv")] {
        let confined = || -> Result<Command> {
            let mut command = within(&[])?;
            without_call(&mut command, number);
            Ok(command)
        };
        let told = refused(confined()?)?;
        ensure!(told.contains("seccomp") && told.contains(name) && told.contains("seccomp=unconfined"), "{told}");
        let lines = missing(confined()?)?;
        ensure!(lines.len() == 1 && lines[0].contains("system calls"), "{lines:?}");
    }
    Ok(())
}

/// Hides a directory.
fn hidden(path: &str) -> [String; 6] {
    let script = format!("mount -t tmpfs tmpfs {path}; exec \"$0\" \"$@\"");
    ["unshare", "--mount", "sh", "-e", "-c", &script].map(str::to_owned)
}

#[test]
fn what_is_hidden_is_named() -> Result<()> {
    for (path, told) in [("/sys", "/sys is not there"), ("/sys/kernel/btf", "CONFIG_DEBUG_INFO_BTF")] {
        let wrapper = hidden(path);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let errors = refused(within(&wrapper)?)?;
        ensure!(errors.contains(told), "{path}: {errors}");
        let lines = missing(within(&wrapper)?)?;
        ensure!(lines.len() == 1 && lines[0].contains("types (BTF)"), "{path}: {lines:?}");
    }
    Ok(())
}

/// tracefs and bpffs are not needed: no probe goes through them, nothing is pinned.
#[test]
fn no_tracefs_and_no_bpffs_are_no_loss() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for path in
        ["/sys/kernel/tracing", "/sys/kernel/debug", "/sys/fs/bpf"].into_iter().filter(|path| Path::new(path).exists())
    {
        let wrapper = hidden(path);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let mut command = within(&wrapper)?;
        let file = directory.path().join("run.vrt");
        let output = command.args(["run", "--as-root", "--force", "-o"]).arg(&file).args(["--", "true"]).output()?;
        ensure!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
        ensure!(missing(within(&wrapper)?)?.is_empty(), "{path}");
    }
    Ok(())
}
