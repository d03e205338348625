//! `cargo xtask ebpf`: builds the eBPF object that is committed, or proves that it comes from the committed source.

mod note;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::{
    command::{root, run, target},
    ebpf::note::{Note, difference, sha256},
    toolchain::{Compiler, TARGET, linker, objcopy},
};

const PACKAGE: &str = "tracer-ebpf";
const BINARY: &str = "vramtrace-bpf";
const OBJECT: &str = "tracer/ebpf/vramtrace-x86_64.bpf.o";
const NOTE: &str = "tracer/ebpf/TOOLCHAIN.txt";

/// Arguments of `cargo xtask ebpf`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rebuild elsewhere and compare with the committed object, byte for byte; change nothing
    #[arg(long)]
    check: bool,
    /// Compiler to use instead of the one found
    #[arg(long)]
    toolchain: Option<Compiler>,
    /// Processor whose registers the programs read; an object for aarch64 is left in target/ebpf/, and none is committed
    #[arg(long, default_value = "x86-64", conflicts_with = "check")]
    arch: Arch,
}

/// Processors that the object can be built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Arch {
    /// The committed object's.
    #[value(name = "x86-64")]
    X86,
    /// Built and checked, never run.
    #[value(name = "aarch64")]
    Arm,
}

impl Arch {
    /// What aya calls it (`bpf_target_arch`).
    const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }
}

/// Builds or checks.
pub(crate) fn main(args: &Args) -> Result<()> {
    let compiler = args.toolchain.map_or_else(Compiler::detect, Ok)?;
    println!("eBPF compiler: {compiler}");
    match args.arch {
        _ if args.check => check(compiler),
        Arch::X86 => write(compiler),
        Arch::Arm => write_arm(compiler),
    }
}

/// An object for those who want to try.
fn write_arm(compiler: Compiler) -> Result<()> {
    let (object, _) = build(compiler, Arch::Arm, &target().join("ebpf-aarch64"))?;
    let path = target().join("ebpf/vramtrace-aarch64.bpf.o");
    fs::write(&path, &object).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}: {} bytes", path.display(), object.len());
    Ok(())
}

fn write(compiler: Compiler) -> Result<()> {
    let (object, note) = build(compiler, Arch::X86, &target().join("ebpf"))?;
    let path = root().join(OBJECT);
    fs::create_dir_all(root().join("tracer/ebpf"))?;
    fs::write(&path, &object).with_context(|| format!("cannot write {}", path.display()))?;
    fs::write(root().join(NOTE), note.to_string()).with_context(|| format!("cannot write {NOTE}"))?;
    println!("{OBJECT}: {} bytes, sha256 {}", object.len(), note.get("sha256"));
    Ok(())
}

/// Fails unless a build from scratch gives the committed bytes.
fn check(compiler: Compiler) -> Result<()> {
    let committed = fs::read(root().join(OBJECT)).with_context(|| format!("no {OBJECT}: run `cargo xtask ebpf`"))?;
    let recorded =
        fs::read_to_string(root().join(NOTE)).with_context(|| format!("no {NOTE}: run `cargo xtask ebpf`"))?;
    let recorded = Note::parse(&recorded);
    ensure!(
        recorded.get("sha256") == sha256(&committed)?,
        "{OBJECT} is not the file that {NOTE} describes: run `cargo xtask ebpf` and commit both"
    );
    let scratch = target().join("ebpf-check");
    remove(&scratch)?;
    let built = build(compiler, Arch::X86, &scratch);
    // The other processor's, in the same place: most crates are built already.
    let other = build(compiler, Arch::Arm, &scratch);
    remove(&scratch)?;
    let (object, note) = built?;
    if object != committed {
        bail!("{}", difference(&committed, &object, &recorded, &note));
    }
    let (arm, _) = other.context("the object for aarch64 cannot be built")?;
    println!("{OBJECT} comes from this source: {} bytes, sha256 {}", object.len(), note.get("sha256"));
    println!("for aarch64 it builds too: {} bytes, which nobody has run", arm.len());
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Builds the object in `dir`: its bytes, and the note on how they came about.
fn build(compiler: Compiler, arch: Arch, dir: &Path) -> Result<(Vec<u8>, Note)> {
    let (linker, objcopy) = (linker()?, objcopy()?);
    // Sources must lie unpacked before the paths to remap can be listed.
    run(compiler.cargo().args(["fetch", "--quiet", "--locked", "--target", TARGET]))?;
    let flags = rustflags(compiler, arch, &linker)?;
    let mut cargo = compiler.cargo();
    cargo.args([
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--package",
        PACKAGE,
        "--bin",
        BINARY,
        "--target",
        TARGET,
    ]);
    cargo.args(compiler.build_args()).arg("--target-dir").arg(dir);
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    // One unit: the same code whatever the number of cores. Debug info becomes BTF; the flag alone would do, but the
    // profile's own level comes in for dependencies.
    cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1").env("CARGO_PROFILE_RELEASE_DEBUG", "2");
    run(&mut cargo)?;

    let linked = dir.join(TARGET).join("release").join(BINARY);
    let stripped = dir.join("stripped.o");
    run(Command::new(&objcopy).arg("--strip-debug").args([&linked, &stripped]))?;
    let object = fs::read(&stripped).with_context(|| format!("cannot read {}", stripped.display()))?;
    ensure_no_paths_of_this_machine(&object)?;
    let note = Note::new(compiler, &linker, &objcopy, &object)?;
    Ok((object, note))
}

fn rustflags(compiler: Compiler, arch: Arch, linker: &Path) -> Result<Vec<String>> {
    let mut flags = vec![
        format!("--cfg=bpf_target_arch=\"{}\"", arch.name()),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        format!("-Clinker={}", linker.display()),
    ];
    // File names go into .BTF.ext: the same ones wherever the clone, the registry and the compiler lie.
    let mut remap = |from: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    remap(&compiler.sysroot()?, "/rust");
    for registry in subdirectories(&cargo_home()?.join("registry/src"))? {
        remap(&registry, "/registry");
    }
    remap(&root(), "/vramtrace");
    Ok(flags)
}

fn cargo_home() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("neither CARGO_HOME nor HOME is set")
}

fn subdirectories(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn ensure_no_paths_of_this_machine(object: &[u8]) -> Result<()> {
    for path in [root(), cargo_home()?] {
        let path = path.to_string_lossy().into_owned();
        let leaked = object.windows(path.len()).any(|bytes| bytes == path.as_bytes());
        ensure!(!leaked, "the object holds `{path}`: it would differ on another machine");
    }
    Ok(())
}
