//! Libraries in all the places where servers have them: the probes are in before the first call, whatever the path.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, book, exact, run_command, vramtrace};
use live_tests::sim::{Config, Sim};
use tracer::ledger::{Book, Kind};

fn start() -> Result<(Sim, PathBuf)> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    Ok((sim, file))
}

/// A copy of a simulated library: another file.
fn copy(sim: &Sim, library: &str, to: &str) -> Result<PathBuf> {
    let to = sim.scratch().join(to);
    fs::create_dir_all(to.parent().context("no parent")?)?;
    fs::copy(sim.libraries().join(library), &to)?;
    Ok(to)
}

/// Probed libraries of a name, none of them late.
fn probed<'a>(book: &'a Book, end: &str) -> Result<Vec<&'a str>> {
    for library in &book.libraries {
        ensure!(!library.late && library.failed.is_empty(), "{}: {}, {:?}", library.path, library.late, library.failed);
    }
    Ok(book.libraries.iter().map(|library| library.path.as_str()).filter(|path| path.ends_with(end)).collect())
}

/// Runs a server that opens each of `paths` with `order` and allocates through it; its ledger must be exact.
fn opens(order: &str, sim: &Sim, file: &Path, paths: &[PathBuf]) -> Result<Book> {
    let mut run = Talk::server(run_command(sim, file, &[])?)?;
    for path in paths {
        // The server reads lines.
        let path = path.to_str().context("an odd path")?.replace('\n', "\x07");
        ensure!(run.ask(&format!("{order} {path}"))? == 0, "{path:?}: {}", run.errors());
    }
    let pid = run.server_pid();
    let (status, ..) = run.finish()?;
    ensure!(status.success(), "{status}");
    let book = book(file)?;
    exact(&book, &sim.settled()?, pid)?;
    Ok(book)
}

#[test]
fn paths_that_need_care() -> Result<()> {
    let (sim, file) = start()?;
    let long = format!("{}/{}/libcuda.so.1", "long".repeat(50), "longer".repeat(40));
    let paths = [
        copy(&sim, "libcuda.so.1", "with space/libcuda.so.1")?,
        copy(&sim, "libcuda.so.1", "with\nnewline/libcuda.so.1")?,
        copy(&sim, "libcuda.so.1", "gelöscht (deleted)/libcuda.so.570.1")?,
        copy(&sim, "libcuda.so.1", &long)?,
    ];
    let book = opens("driver", &sim, &file, &paths)?;
    let probed = probed(&book, "")?;
    for path in &paths {
        ensure!(probed.contains(&path.to_str().context("an odd path")?), "{path:?} is not among {probed:?}");
    }
    Ok(())
}

/// Two long paths that begin alike, and two files that have the same relative path one after the other.
#[test]
fn names_that_say_too_little() -> Result<()> {
    let (sim, file) = start()?;
    let long = "l".repeat(250);
    for place in ["a", "b"] {
        copy(&sim, "libcuda.so.1", &format!("{long}/{place}/libcuda.so.1"))?;
    }
    let (a, b) = (sim.scratch().join(&long).join("a"), sim.scratch().join(&long).join("b"));
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    let mut children = Vec::new();
    // A process has one library of a name: children open the others.
    for path in [a.join("libcuda.so.1"), b.join("libcuda.so.1"), "./libcuda.so.1".into(), "./libcuda.so.1".into()] {
        if children.len() >= 2 {
            run.order(&format!("chdir {}", if children.len() == 2 { &a } else { &b }.display()))?;
        }
        run.say("child")?;
        children.push(run.answer("ready")?.cast_unsigned());
        run.say(&format!("below driver {}", path.display()))?;
        ensure!(run.answer("driver")? == 0);
    }
    run.say("exit 0")?;
    run.wait()?;
    let (truth, book) = (sim.settled()?, book(&file)?);
    probed(&book, "")?;
    children.into_iter().try_for_each(|pid| exact(&book, &truth, pid))
}

#[test]
fn links_and_a_virtual_environment() -> Result<()> {
    let (sim, file) = start()?;
    let packages = "venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib";
    let real = copy(&sim, "libcudart.so.12", &format!("{packages}/libcudart.so.12"))?;
    let driver = copy(&sim, "libcuda.so.1", "driver/libcuda.so.580.65.06")?;
    let links = sim.scratch().join("links");
    fs::create_dir(&links)?;
    symlink("../driver/libcuda.so.580.65.06", links.join("libcuda.so.1"))?;
    symlink("libcuda.so.1", links.join("libcuda.so"))?;
    symlink(sim.scratch().join("venv/lib"), sim.scratch().join("venv/lib64"))?;
    let through = sim.scratch().join(packages.replace("venv/lib/", "venv/lib64/")).join("libcudart.so.12");
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    ensure!(run.ask(&format!("runtime {}", through.display()))? == 0);
    ensure!(run.ask(&format!("driver {}", links.join("libcuda.so").display()))? == 0);
    let pid = run.server_pid();
    run.finish()?;
    let book = book(&file)?;
    exact(&book, &sim.settled()?, pid)?;
    ensure!(probed(&book, "site-packages/nvidia/cuda_runtime/lib/libcudart.so.12")?.len() == 1, "{:?}", book.libraries);
    ensure!(probed(&book, "driver/libcuda.so.580.65.06")?.len() == 1, "{:?}", book.libraries);
    ensure!(real != through && driver.exists());
    Ok(())
}

#[test]
fn two_runtimes_at_once() -> Result<()> {
    let (sim, file) = start()?;
    let paths =
        [copy(&sim, "libcudart.so.12", "a/libcudart.so.12")?, copy(&sim, "libcudart.so.12", "b/libcudart.so.12")?];
    let book = opens("runtime", &sim, &file, &paths)?;
    // Its own, and the two.
    ensure!(probed(&book, "libcudart.so.12")?.len() == 3, "{:?}", book.libraries);
    let made: Vec<_> = book.allocations.iter().filter(|a| a.kind == Kind::CudaMalloc).collect();
    ensure!(made.len() == 2 && made.iter().all(|a| a.calls[0] == "cudaMalloc"), "{made:?}");
    Ok(())
}

#[test]
fn a_run_path_from_the_program_itself() -> Result<()> {
    let (sim, file) = start()?;
    for library in ["libcudart.so.12", "libcuda.so.1"] {
        copy(&sim, library, &format!("app/lib/{library}"))?;
    }
    fs::create_dir(sim.scratch().join("app/bin"))?;
    let program = sim.scratch().join("app/bin/server");
    fs::copy(sim.program("server-origin"), &program)?;
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.env_remove("LD_LIBRARY_PATH").args(["run", "--as-root", "-o"]).arg(&file).arg("--").arg(&program);
    let mut run = Talk::server(command)?;
    run.order("alloc 10")?;
    let pid = run.server_pid();
    run.finish()?;
    let book = book(&file)?;
    exact(&book, &sim.settled()?, pid)?;
    ensure!(
        probed(&book, "/app/lib/libcudart.so.12")?.len() == 1 && probed(&book, "/app/lib/libcuda.so.1")?.len() == 1
    );
    Ok(())
}

/// Runs a shell script under the tracer.
fn script(sim: &Sim, file: &Path, text: &str) -> Result<String> {
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.env("SERVER", sim.program("server"));
    command.args(["run", "--as-root", "-o"]).arg(file).args(["--", "sh", "-e", "-c", text]);
    let output = command.output()?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn one_path_in_two_mount_namespaces() -> Result<()> {
    let (sim, file) = start()?;
    let path = copy(&sim, "libcuda.so.1", "here/libcuda.so.1")?;
    copy(&sim, "libcuda.so.1", "there/libcuda.so.1")?;
    let (path, scratch) = (path.display(), sim.scratch().display());
    let mount = format!("mount --bind {scratch}/there {scratch}/here; echo driver {path} | $SERVER");
    let said = script(&sim, &file, &format!("echo driver {path} | $SERVER; unshare -m sh -e -c '{mount}'"))?;
    ensure!(said.matches("driver 0").count() == 2, "{said}");
    let (truth, book) = (sim.settled()?, book(&file)?);
    ensure!(truth.processes().len() == 2);
    truth.processes().into_iter().try_for_each(|pid| exact(&book, &truth, pid))?;
    ensure!(probed(&book, "/libcuda.so.1")?.len() == 2, "{:?}", book.libraries);
    Ok(())
}

/// `NAME=VALUE …`, for a shell.
fn variables(environment: &[(&str, OsString)]) -> String {
    let words: Vec<_> = environment.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy())).collect();
    words.join(" ")
}

/// Two containers without namespaces: own libc, own dynamic linker, one path for their libcudas.
#[test]
fn root_directories_of_their_own() -> Result<()> {
    let (mut one, file) = start()?;
    let mut other = Sim::start(Config::default())?;
    one.make_root()?;
    let environment = other.make_root()?;
    let server = |sim: &Sim| format!("echo alloc 10 | chroot {} /server", sim.scratch().display());
    let text = format!("export {}; {}; {}", variables(&environment), server(&one), server(&other));
    let said = script(&one, &file, &text)?;
    ensure!(said.matches("alloc 0").count() == 2, "{said}");
    let book = book(&file)?;
    for sim in [&one, &other] {
        let truth = sim.settled()?;
        ensure!(truth.processes().len() == 1);
        exact(&book, &truth, truth.processes()[0])?;
    }
    ensure!(probed(&book, "/lib/libcuda.so.1")?.len() == 2, "{:?}", book.libraries);
    Ok(())
}

/// As a container has it: namespaces, and a root directory. Pids are those of the host.
#[test]
fn a_container() -> Result<()> {
    let (mut sim, file) = start()?;
    let environment = sim.make_root()?;
    let text = format!(
        "export {}; printf 'alloc 10\\nchild\\nbelow alloc 20\\n' | unshare --mount --pid --fork --ipc --uts chroot {} /server",
        variables(&environment),
        sim.scratch().display()
    );
    let said = script(&sim, &file, &text)?;
    ensure!(said.starts_with("ready 1\n"), "the first process of its namespace: {said}");
    let (truth, book) = (sim.settled()?, book(&file)?);
    let pids = truth.processes();
    ensure!(!pids.is_empty() && pids.iter().all(|pid| *pid > 2), "{pids:?}");
    pids.into_iter().try_for_each(|pid| exact(&book, &truth, pid))
}

/// Symbols of a program that has the runtime in it, where it is named.
#[test]
fn a_static_runtime_that_is_named() -> Result<()> {
    let (sim, file) = start()?;
    let program = sim.program("scenario-static");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--lib").arg(&program).arg("--").arg(&program).arg("large");
    ensure!(command.output()?.status.success());
    let (truth, book) = (sim.settled()?, book(&file)?);
    exact(&book, &truth, truth.processes()[0])?;
    let first = |name: &str| book.allocations.iter().filter(|a| a.calls.first().is_some_and(|c| c == name)).count();
    ensure!(first("cudaMalloc") > 0 && first("cuMemAlloc_v2") == 0, "{:?}", book.allocations);
    Ok(())
}

/// A wrong `--lib` is one error before anything runs.
#[test]
fn a_library_that_is_none_is_refused() -> Result<()> {
    let (sim, file) = start()?;
    let mark = sim.scratch().join("mark");
    for (library, told) in [("/etc/passwd", "no ELF file"), ("/bin/true", "defines no function")] {
        let mut command = Command::new(vramtrace()?);
        command.args(["run", "--force", "-o"]).arg(&file).args(["--lib", library, "--", "touch"]).arg(&mark);
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(1) && errors.lines().count() == 1, "{}: {errors}", output.status);
        ensure!(errors.contains(library) && errors.contains(told), "{errors}");
    }
    ensure!(!mark.exists());
    Ok(())
}
