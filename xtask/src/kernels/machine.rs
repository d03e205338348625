//! A virtual machine that runs one script on the host's files.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::{fetch, initramfs};
use crate::{command::target, qemu::Qemu};

/// Memory of the machine, MiB.
const MEMORY: u32 = 3072;
/// The file server of qemu 7 (Debian 12), and the one of its own that newer qemu has.
const SERVERS: [(&str, &[&str]); 2] = [
    ("/usr/lib/qemu/virtiofsd", &["-o", "source=/", "-o", "sandbox=chroot", "-o", "cache=always", "-o", "writeback"]),
    ("/usr/libexec/virtiofsd", &["--shared-dir", "/", "--sandbox", "chroot", "--cache", "always", "--writeback"]),
];

/// What to boot.
pub(super) struct Machine<'a> {
    pub(super) tree: &'a Path,
    /// Directory for its files.
    pub(super) place: &'a Path,
    /// More words for the kernel's command line.
    pub(super) append: &'a str,
    pub(super) emulate: bool,
}

/// True where virtual machines run on the processor itself. `/dev/kvm` alone does not tell: it is also there in virtual
/// machines whose processor shows no such instructions.
pub(super) fn has_kvm() -> bool {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let can = flags.split_ascii_whitespace().any(|word| word == "vmx" || word == "svm");
    can && File::options().read(true).write(true).open("/dev/kvm").is_ok()
}

impl Machine<'_> {
    /// How the machine runs, for the table.
    pub(super) fn how(&self) -> &'static str {
        if self.emulate { "emulated (TCG)" } else { "KVM" }
    }

    /// Runs a script in the machine, showing the lines it says; gives all that the console said.
    pub(super) fn run(&self, script: &Path, longest: Duration) -> Result<String> {
        let initramfs = initramfs::make(self.tree, self.place)?;
        let socket = self.place.join("files.sock");
        _ = fs::remove_file(&socket);
        let mut server = Ended(files(&socket, &self.place.join("files.log"))?);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !socket.exists() {
            ensure!(
                server.0.try_wait()?.is_none() && Instant::now() < deadline,
                "virtiofsd does not serve: see files.log"
            );
            thread::sleep(Duration::from_millis(20));
        }
        let mut qemu = Ended(self.qemu(&initramfs, &socket, script)?.spawn().context("cannot run qemu-system-x86_64")?);
        let output = BufReader::new(qemu.0.stdout.take().context("no console")?);
        let console = self.place.join("console.txt");
        let file = File::create(&console)?;
        let reader = thread::spawn(move || listen(output, file));
        let deadline = Instant::now() + longest;
        while !reader.is_finished() {
            if Instant::now() > deadline {
                bail!("the machine did not end within {longest:?}: see {}", console.display());
            }
            thread::sleep(Duration::from_millis(100));
        }
        reader.join().ok().context("the reader of the console panicked")?
    }

    fn qemu(&self, initramfs: &Path, socket: &Path, script: &Path) -> Result<Command> {
        let host = Qemu::get();
        let mut qemu = host.command(&host.emulator())?;
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.args(match self.emulate {
            true => ["-machine", "q35,accel=tcg", "-cpu", "max"],
            false => ["-machine", "q35,accel=kvm", "-cpu", "host"],
        });
        qemu.args(["-smp", "2", "-m", &MEMORY.to_string()]);
        // The file server reads and writes the machine's memory.
        qemu.args(["-object", &format!("memory-backend-memfd,id=memory,size={MEMORY}M,share=on")]);
        qemu.args(["-numa", "node,memdev=memory", "-device", "vhost-user-fs-pci,chardev=files,tag=host"]);
        qemu.arg("-chardev").arg(format!("socket,id=files,path={}", socket.display()));
        qemu.args(["-serial", "stdio", "-kernel"]).arg(fetch::image(self.tree)?).arg("-initrd").arg(initramfs);
        let program = format!("host {} {}", target().display(), script.display());
        // An emulated timer may come too late for the kernel's test of it.
        qemu.arg("-append").arg(format!("console=ttyS0 quiet panic=-1 no_timer_check {} -- {program}", self.append));
        qemu.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(qemu)
    }
}

/// Starts the server of the host's files.
fn files(socket: &Path, log: &Path) -> Result<Child> {
    let qemu = Qemu::get();
    let found = SERVERS.map(|(path, options)| (qemu.path(path), options)).into_iter().find(|(path, _)| path.exists());
    let (program, options) = found.context("no virtiofsd: it comes with qemu-system-common, or as virtiofsd")?;
    let log = File::create(log)?;
    let mut server = qemu.command(&program)?;
    server.arg(format!("--socket-path={}", socket.display())).args(options);
    server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().context("cannot run virtiofsd")
}

/// Passes on what the machine says (`vm: …`), and keeps everything.
fn listen(mut console: impl BufRead, mut file: File) -> Result<String> {
    let (mut all, mut bytes) = (String::new(), Vec::new());
    while console.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes).replace('\r', "");
        if let Some(said) = line.strip_prefix("vm: ") {
            print!("{said}");
        }
        file.write_all(line.as_bytes())?;
        all += &line;
        bytes.clear();
    }
    Ok(all)
}

/// A process that ends with this value.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_kept_whole() {
        let path = std::env::temp_dir().join(format!("console-{}", std::process::id()));
        let text: &[u8] = b"[ 1.0] booting\r\nvm: kernel 6.1\r\n\xff\r\nlast";
        let all = listen(text, File::create(&path).unwrap()).unwrap();
        assert_eq!(all, "[ 1.0] booting\nvm: kernel 6.1\n\u{fffd}\nlast");
        assert_eq!(fs::read_to_string(&path).unwrap(), all);
        fs::remove_file(path).unwrap();
    }
}
