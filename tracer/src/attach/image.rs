//! What a process runs, from `/proc/PID`: arguments, executable, parent, and the variables that matter, without secrets.

use std::{
    fs::{self, File},
    io::{self, Read},
};

use super::secret;
use crate::{text, trace::record::Image};

/// Bytes read of a command line or an environment at most. The kernel allows more (a quarter of the stack limit,
/// usually 2 MiB), servers use a few KiB.
const READ: u64 = 512 * 1024;
/// Arguments kept.
const ARGUMENTS: usize = 512;
/// Bytes kept of one argument or variable.
const TEXT: usize = 4096;

/// Variables kept: those whose name begins so.
const PREFIXES: [&str; 16] = [
    "CUDA_",
    "NCCL_",
    "SGLANG_",
    "SGL_",
    "VLLM_",
    "TORCH_",
    "PYTORCH_",
    "NVIDIA_",
    "TRITON_",
    "NVSHMEM_",
    "CUBLAS_",
    "CUDNN_",
    "FLASHINFER_",
    "TORCHINDUCTOR_",
    "UCX_",
    "HF_HUB_",
];
/// Variables kept: these.
const NAMES: [&str; 14] = [
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "OMP_NUM_THREADS",
    "HF_HOME",
];

/// What a process runs now. An environment that may not be read is left out.
///
/// # Errors
/// The process does not exist (any more).
pub fn image(pid: u32) -> io::Result<Image> {
    let argv = words(&read(pid, "cmdline")?);
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    Ok(Image {
        argv: scrub(&argv),
        exe: exe.to_string_lossy().into_owned(),
        parent: parent(&fs::read_to_string(format!("/proc/{pid}/stat"))?).unwrap_or_default(),
        env: selected(&read(pid, "environ").unwrap_or_default()),
    })
}

/// A command line without secrets.
#[must_use]
pub fn scrub(argv: &[String]) -> Vec<String> {
    secret::arguments(argv).iter().map(|argument| shorten(argument)).collect()
}

/// Title of a process as `ps` shows it: its command line, which `setproctitle` overwrites. `None` when it has none (a
/// kernel thread, a zombie) or is gone.
#[must_use]
pub fn title(pid: u32) -> Option<String> {
    let argv = words(&read(pid, "cmdline").ok()?);
    let title = secret::arguments(&argv).join(" ");
    let title = shorten(title.trim());
    (!title.is_empty()).then_some(title)
}

fn read(pid: u32, file: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{file}"))?.take(READ).read_to_end(&mut bytes)?;
    // Half a word could hide a secret's name.
    if bytes.len() as u64 == READ {
        bytes.truncate(bytes.iter().rposition(|&byte| byte == 0).map_or(0, |end| end + 1));
    }
    Ok(bytes)
}

/// Strings that end in NUL. Programs that rename themselves leave any number of NULs behind the new name.
fn words(bytes: &[u8]) -> Vec<String> {
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    if used == 0 {
        return Vec::new();
    }
    let word = |bytes| String::from_utf8_lossy(bytes).into_owned();
    bytes[..used].split(|&byte| byte == 0).take(ARGUMENTS).map(word).collect()
}

/// Takes any bytes for what a process says of itself.
#[cfg(any(test, fuzzing))]
pub(crate) fn foreign(bytes: &[u8]) {
    let kept = scrub(&words(bytes)).into_iter().chain(selected(bytes));
    kept.for_each(|text| assert!(text.len() <= TEXT + '…'.len_utf8(), "a text of any length is kept"));
    std::hint::black_box(parent(&String::from_utf8_lossy(bytes)));
}

/// The variables to keep, by name.
fn selected(environ: &[u8]) -> Vec<String> {
    let variables = environ.split(|&byte| byte == 0).filter_map(|variable| {
        let variable = String::from_utf8_lossy(variable);
        let (name, value) = variable.split_once('=')?;
        let wanted = NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let value = secret::variable(name, value).filter(|_| wanted)?;
        Some(shorten(&format!("{name}={value}")))
    });
    let mut variables: Vec<String> = variables.collect();
    variables.sort_unstable();
    variables
}

/// Parent process id: the fourth field of `/proc/PID/stat`. The second may hold blanks and parentheses.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn shorten(text: &str) -> String {
    text::cut(text, TEXT)
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        os::unix::process::CommandExt,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_process_is_described_without_its_secrets() {
        // `cat` gives back its input, whatever it is called.
        let mut child = Command::new("cat")
            .arg0("server --api-key planted1")
            .arg("-")
            .env_clear()
            .envs([("NCCL_DEBUG", "INFO"), ("HF_HUB_TOKEN", "planted2"), ("HOME", "/root"), ("RANK", "3")])
            .env("CUDA_VISIBLE_DEVICES", "0,1")
            .env("VLLM_URL", "http://u:planted3@host")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It runs once it does: the kernel lets the parent go on before the child's new arguments are in place.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let (image, title) = (image(child.id()).unwrap(), title(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(image.argv, ["server --api-key ***", "-"]);
        assert_eq!(title.as_deref(), Some("server --api-key *** -"));
        assert!(image.exe.ends_with("/cat"), "{}", image.exe);
        assert_eq!(image.parent, std::process::id());
        assert_eq!(image.env, ["CUDA_VISIBLE_DEVICES=0,1", "NCCL_DEBUG=INFO", "RANK=3", "VLLM_URL=http://***@host"]);
        assert!(super::image(child.id()).is_err());
        assert_eq!(super::title(child.id()), None);
    }

    #[test]
    fn a_title_set_over_the_arguments_loses_its_padding() {
        assert_eq!(words(b"sglang::scheduler_TP0\0\0\0\0"), ["sglang::scheduler_TP0"]);
        assert_eq!(words(b"a\0\0b\0"), ["a", "", "b"], "an empty argument stays");
        assert_eq!(words(b"caf\xe9\0"), ["caf\u{fffd}"]);
        assert_eq!(words(b"\0\0"), Vec::<String>::new());
    }

    #[test]
    fn sizes_are_bounded() {
        let many = b"a\0".repeat(ARGUMENTS * 3);
        assert_eq!(words(&many).len(), ARGUMENTS);
        let long = "é".repeat(TEXT);
        let short = shorten(&long);
        assert!(short.len() <= TEXT + 3 && short.ends_with('…'));
    }

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent("12 (a) b (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12"), None);
    }
}
