//! Searches on real directories and processes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::attach::elf::tests::build;

#[test]
fn packagers_names_are_recognised_and_lookalikes_are_not() {
    let names: &[(&str, Option<Lib>)] = &[
        ("libcuda.so", Some(Lib::Cuda)),
        ("libcuda.so.1", Some(Lib::Cuda)),
        ("libcuda.so.580.159.04", Some(Lib::Cuda)),
        ("libcudart.so.11.0", Some(Lib::Cudart)),
        ("libcudart.faf08d9a.so.13", Some(Lib::Cudart)),
        ("libcudart-9335f6a2.so.12.4.127", Some(Lib::Cudart)),
        ("libnccl.so.2", Some(Lib::Nccl)),
        ("libc10.so", Some(Lib::C10)),
        ("libc10_cuda.so", None),
        ("torch_memory_saver_hook_mode_preload_cu13.abi3.so", Some(Lib::MemorySaver)),
        ("torch_memory_saver_cpp.abi3.so", Some(Lib::MemorySaver)),
        ("torch_memory_saver.py", None),
        ("libcudadebugger.so.1", None),
        ("libcudart_static.a", None),
        ("libnccl-net.so", None),
        ("libnccl-tuner-v2.so", None),
        ("libcuda.so.1.py", None),
        ("libcuda.so.", None),
        ("libcuda.", None),
        ("libcuda", None),
        ("xlibcuda.so.1", None),
        ("", None),
    ];
    for (name, lib) in names {
        assert_eq!(recognise(name), *lib, "{name}");
    }
}

proptest::proptest! {
    #[test]
    fn any_name_is_survived(name in "(libcuda|libnccl)?[.-]?(so|[0-9a-f]{0,9}|é)?.*") {
        let _ = recognise(&name);
    }
}

/// Creates a file and its directories.
fn touch(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, path.as_os_str().as_encoded_bytes()).unwrap();
}

fn env(list: &[(&str, &Path)]) -> Vec<(OsString, OsString)> {
    list.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}

/// Paths found below `dir`, relative to it. The machine's own libraries are left out.
fn below(found: &Found, dir: &Path) -> Vec<String> {
    let dir = fs::canonicalize(dir).unwrap();
    let here = found.libraries.iter().filter_map(|library| library.path.strip_prefix(&dir).ok());
    here.map(|path| path.display().to_string()).collect()
}

#[test]
fn a_virtual_environments_packages_are_found_through_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    touch(&at("python/bin/python3.12"));
    touch(&at("python/lib/python3.12/site-packages/torch/lib/libc10.so"));
    fs::create_dir_all(at("venv/bin")).unwrap();
    symlink(at("python/bin/python3.12"), at("venv/bin/python")).unwrap();
    fs::write(at("venv/bin/serve"), format!("#!{}\nimport x\n", at("venv/bin/python").display())).unwrap();
    let site = "venv/lib/python3.12/site-packages";
    touch(&at(&format!("{site}/nvidia/cu13/lib/libcudart.so.13")));
    touch(&at(&format!("{site}/nvidia/nccl/lib/libnccl.so.2")));
    touch(&at(&format!("{site}/torchvision.libs/libcudart.faf08d9a.so.13")));
    touch(&at(&format!("{site}/torch/lib/libc10_cuda.so")));
    let found = near_command(at("venv/bin/serve").as_os_str(), &env(&[]), dir.path());
    assert_eq!(
        below(&found, dir.path()),
        [
            format!("{site}/nvidia/cu13/lib/libcudart.so.13"),
            format!("{site}/nvidia/nccl/lib/libnccl.so.2"),
            format!("{site}/torchvision.libs/libcudart.faf08d9a.so.13"),
            "python/lib/python3.12/site-packages/torch/lib/libc10.so".to_owned(),
        ]
    );
}

#[test]
fn the_environment_leads_to_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    touch(&at("pyenv/shims/python3"));
    touch(&at("pyenv/versions/3.11.7/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"));
    touch(&at("ld/libcuda.so.535.1"));
    symlink("libcuda.so.535.1", at("ld/libcuda.so.1")).unwrap();
    touch(&at("toolkit/targets/x86_64-linux/lib/libcudart.so.13.0.96"));
    touch(&at("path/torch/lib/libc10.so"));
    touch(&at("preloaded/libnccl.so.2"));
    fs::create_dir_all(at("work/sub")).unwrap();
    let env = env(&[
        ("PATH", &at("pyenv/shims")),
        ("LD_LIBRARY_PATH", Path::new("../ld:/nowhere")),
        ("CUDA_HOME", &at("toolkit")),
        ("PYTHONPATH", &at("path")),
        ("LD_PRELOAD", &at("preloaded/libnccl.so.2")),
    ]);
    let found = near_command(OsStr::new("python3"), &env, &at("work"));
    assert_eq!(
        below(&found, dir.path()),
        [
            "preloaded/libnccl.so.2",
            "ld/libcuda.so.535.1",
            "pyenv/versions/3.11.7/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12",
            "path/torch/lib/libc10.so",
            "toolkit/targets/x86_64-linux/lib/libcudart.so.13.0.96",
        ]
    );
    let cuda = found
        .libraries
        .iter()
        .find(|library| library.lib == Lib::Cuda && library.path.starts_with(fs::canonicalize(dir.path()).unwrap()));
    assert!(cuda.unwrap().shown.ends_with("/ld/libcuda.so.535.1"), "the file, not a link to it");
}

#[test]
fn a_fifo_under_a_librarys_name_does_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("libcuda.so.1");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let found = near_command(OsStr::new("none"), &env(&[("LD_LIBRARY_PATH", dir.path())]), dir.path());
    assert_eq!(below(&found, dir.path()), [""; 0]);
    assert!(found.skipped >= 1);
    assert!(matches!(named(&fifo), Err(NamedError::Elf(elf::Error::Io { .. }))));
}

#[test]
fn a_file_is_found_once_whatever_its_names() {
    let dir = tempfile::tempdir().unwrap();
    touch(&dir.path().join("libnccl.so.2"));
    fs::hard_link(dir.path().join("libnccl.so.2"), dir.path().join("libnccl.so.2.21.5")).unwrap();
    symlink("libnccl.so.2", dir.path().join("libnccl.so")).unwrap();
    let found = near_command(OsStr::new("none"), &env(&[("LD_LIBRARY_PATH", dir.path())]), dir.path());
    assert_eq!(below(&found, dir.path()).len(), 1);
}

/// A process that maps a library, and is killed when the test ends.
struct Mapper(Child);

impl Mapper {
    fn start(library: &Path) -> Self {
        let child = Command::new("sleep").arg("60").env("LD_PRELOAD", library).stdout(Stdio::null()).spawn().unwrap();
        let this = Self(child);
        for _ in 0..500 {
            if !mapped_by(this.0.id()).libraries.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        this
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn mapped_libraries_are_found_even_when_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libnccl.so.2");
    build(&path, "int ncclCommInitRank(void) { return 0; }");
    let mapper = Mapper::start(&path);
    let found = mapped_by(mapper.0.id());
    let original = fs::metadata(&path).unwrap().ino();
    assert_eq!(found.libraries.len(), 1);
    assert_eq!((found.libraries[0].lib, found.libraries[0].inode), (Lib::Nccl, original));
    assert_eq!(found.libraries[0].path, path);
    assert!(running().libraries.contains(&found.libraries[0]));

    // An upgrade puts another file under the name; the process still runs the first.
    fs::remove_file(&path).unwrap();
    touch(&path);
    let replaced = mapped_by(mapper.0.id());
    if let [library] = &replaced.libraries[..] {
        assert_eq!(library.inode, original, "never the file that took its name");
        assert!(library.path.starts_with(format!("/proc/{}", mapper.0.id())));
    } else {
        assert_eq!(replaced.skipped, 1, "without the right to follow map_files it is counted");
    }
}

#[test]
fn a_vanished_process_is_counted() {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    assert_eq!(mapped_by(child.id()), Found { skipped: 1, ..Found::default() });
}

#[test]
fn a_program_with_a_static_runtime_is_what_it_defines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server");
    build(&path, "int cudaMalloc(void) { return 0; } int cudaFree(void) { return 1; }");
    assert_eq!(named(&path).unwrap().lib, Lib::Cudart);
    let nccl =
        "int ncclCommInitRank(void) { return 0; } int cudaMalloc(void) { return 1; } int cudaFree(void) { return 2; }";
    build(&dir.path().join("libnccl.so.2"), nccl);
    assert_eq!(
        named(&dir.path().join("libnccl.so.2")).unwrap().lib,
        Lib::Nccl,
        "its name outweighs its static runtime"
    );
    build(&path, "int other(void) { return 0; }");
    let error = named(&path).unwrap_err().to_string();
    assert!(error.contains("defines no function"), "{error}");
}
