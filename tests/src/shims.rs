//! Builds the simulated libraries and programs with the C compiler, once for all tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, bail};

/// Something that `cc` makes.
struct Product {
    name: &'static str,
    /// Directories below `tests/` whose C files go into it.
    sources: &'static [&'static str],
    flags: &'static [&'static str],
}

const SHARED: &[&str] = &["-shared", "-fvisibility=hidden"];

const PRODUCTS: &[Product] = &[
    Product { name: "libcuda.so.1", sources: &["cuda/driver"], flags: SHARED },
    Product { name: "libcudart.so.12", sources: &["cuda/runtime"], flags: SHARED },
    Product { name: "libnvidia-ml.so.1", sources: &["cuda/nvml"], flags: SHARED },
    Product { name: "libc10.so", sources: &["cuda/c10"], flags: SHARED },
    Product {
        name: "libc10_cuda.so",
        sources: &["cuda/c10_cuda"],
        flags: &["-shared", "-fvisibility=hidden", "-l:libc10.so", "-l:libcudart.so.12"],
    },
    Product {
        name: "libtorch_cuda.so",
        sources: &["cuda/torch_cuda"],
        flags: &["-shared", "-fvisibility=hidden", "-l:libcudart.so.12"],
    },
    Product { name: "torch_memory_saver_hook_mode_torch.abi3.so", sources: &["cuda/memory_saver"], flags: SHARED },
    Product {
        name: "libcublas.so.12",
        sources: &["cuda/cublas", "cuda/runtime"],
        flags: &["-shared", "-fvisibility=hidden", "-DSTATIC_RUNTIME"],
    },
    Product {
        name: "libnccl.so.2",
        sources: &["cuda/nccl", "cuda/runtime"],
        flags: &["-shared", "-fvisibility=hidden", "-DSTATIC_RUNTIME"],
    },
    Product { name: "scenario", sources: &["programs"], flags: &["-l:libcudart.so.12"] },
    Product {
        name: "scenario-static",
        sources: &["programs", "cuda/runtime"],
        flags: &["-fvisibility=hidden", "-DSTATIC_RUNTIME"],
    },
    Product { name: "server", sources: &["actors/server"], flags: &["-l:libcudart.so.12"] },
    Product {
        name: "server-origin",
        sources: &["actors/server"],
        flags: &["-l:libcudart.so.12", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"],
    },
    Product { name: "odd", sources: &["actors/odd"], flags: &["-rdynamic"] },
    Product { name: "lines", sources: &["actors/lines"], flags: &[] },
    Product { name: "call-all", sources: &["actors/caller"], flags: &[] },
    // With frame pointers: what the bench compares with walks stacks by them.
    Product { name: "bench", sources: &["actors/bench"], flags: &["-fno-omit-frame-pointer", "-l:libc10.so"] },
    Product {
        name: "libbench.so",
        sources: &["actors/bench"],
        flags: &["-shared", "-fvisibility=hidden", "-fno-omit-frame-pointer", "-l:libc10.so"],
    },
    Product {
        name: "libbench-malloc.so",
        sources: &["actors/malloc"],
        flags: &["-shared", "-fvisibility=hidden", "-fno-builtin"],
    },
    Product { name: "libpreload.so", sources: &["actors/preload"], flags: SHARED },
    Product { name: "smi", sources: &["cuda/smi"], flags: &["-l:libnvidia-ml.so.1"] },
];

/// Directory with the built libraries (real sonames) and programs.
///
/// # Errors
/// When there is no `cc` or it refuses a source: its output is in the error.
pub fn build() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| build_all().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => Err(anyhow!("cannot build the simulated CUDA stack: {error}")),
    }
}

fn build_all() -> Result<PathBuf> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = crate::sim::target_directory()?.join("sim");
    fs::create_dir_all(&out)?;
    // Test binaries may run at the same time.
    let lock = File::create(out.join("lock"))?;
    lock.lock()?;
    let newest = newest_source(tests)?;
    for product in PRODUCTS {
        let path = out.join(product.name);
        if modified(&path).is_none_or(|built| built < newest) {
            compile(tests, &out, product)?;
        }
    }
    Ok(out)
}

fn compile(tests: &Path, out: &Path, product: &Product) -> Result<()> {
    // The finished file appears at once under its name: a program that runs the old one keeps it.
    let new = out.join(format!("{}.new", product.name));
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-O1", "-g", "-fPIC", "-fno-plt", "-Wall", "-Wextra", "-Werror"]);
    for directory in product.sources {
        cc.args(c_files(&tests.join(directory))?);
    }
    // Libraries the program needs come after its sources, and are found beside it.
    cc.arg(format!("-Wl,-soname,{}", product.name)).arg(format!("-L{}", out.display()));
    cc.args(product.flags).args(["-pthread", "-ldl", "-o"]).arg(&new);
    let output = cc.output().with_context(|| format!("cannot run {}", cc.get_program().display()))?;
    if !output.status.success() {
        bail!("{}:\n{}", product.name, String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(new, out.join(product.name))?;
    Ok(())
}

fn c_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn newest_source(tests: &Path) -> Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    let mut directories = ["actors", "cuda", "programs"].map(|name| tests.join(name)).to_vec();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if let Some(time) = modified(&path) {
                newest = newest.max(time);
            }
        }
    }
    // A change in how things are built counts as well.
    Ok(newest.max(modified(&tests.join("src/shims.rs")).unwrap_or(newest)))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}
