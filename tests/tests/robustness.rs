//! Targets that are hard on a tracer: many threads, many processes, calls that are left by other ways than their return.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, book, exact, run_command, vramtrace};
use live_tests::sim::{Config, Sim};
use tracer::trace::{
    Reader,
    record::{Call, Outcome, Record},
};

fn start() -> Result<(Sim, PathBuf)> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    Ok((sim, file))
}

fn calls(file: &Path) -> Result<Vec<Call>> {
    let records = Reader::open(file)?.collect::<Result<Vec<_>, _>>()?;
    Ok(records.into_iter().filter_map(|r| if let Record::Call(call) = r { Some(call) } else { None }).collect())
}

#[test]
fn threads_that_live_for_one_allocation() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    // The context first: whichever thread made it would differ from run to run.
    run.order("alloc 1")?;
    run.order("threads 512")?;
    let pid = run.server_pid();
    run.finish()?;
    let book = book(&file)?;
    exact(&book, &sim.settled()?, pid)?;
    ensure!(book.losses.is_empty(), "{:?}", book.losses);
    let calls = calls(&file)?;
    for (api, count) in [("cudaMalloc", 513), ("cudaFree", 512), ("cuMemAlloc_v2", 513), ("cuMemFree_v2", 512)] {
        let seen = calls.iter().filter(|call| call.api == api).count();
        ensure!(seen == count, "{seen} calls of {api}, not {count}");
    }
    // Each driver call within the runtime's of its own thread.
    for inner in calls.iter().filter(|call| call.api.starts_with("cuMem")) {
        let outer = calls.iter().find(|call| call.tid == inner.tid && call.start == inner.outer);
        let outer = outer.with_context(|| format!("nothing around {inner:?}"))?;
        ensure!(inner.inside == outer.api && outer.t >= inner.t, "{inner:?} in {outer:?}");
    }
    Ok(())
}

#[test]
fn children_that_end_at_once() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("alloc 1")?;
    run.order("storm 200")?;
    let pid = run.server_pid();
    let (status, ..) = run.finish()?;
    ensure!(status.success());
    let book = book(&file)?;
    exact(&book, &sim.settled()?, pid)?;
    // Children gone before their writes could be probed are counted: a line of theirs may be missing, nothing else.
    let (unfollowed, others): (Vec<_>, Vec<_>) = book.losses.iter().partition(|(why, _)| *why == "unfollowed");
    ensure!(unfollowed.iter().all(|(_, count)| **count <= 200) && others.is_empty(), "{:?}", book.losses);
    ensure!(book.notices.is_empty(), "{:?}", book.notices);
    let children: Vec<_> = book.processes.iter().filter(|p| p.parent == Some(pid)).collect();
    ensure!(children.len() == 200, "{} children", children.len());
    let mut codes: Vec<i32> = children.iter().filter_map(|p| p.exit_code).collect();
    let mut want: Vec<i32> = (0..200).map(|i| i & 63).collect();
    codes.sort_unstable();
    want.sort_unstable();
    ensure!(codes == want, "{codes:?}");
    Ok(())
}

#[test]
fn programs_that_end_at_once() -> Result<()> {
    let (sim, file) = start()?;
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    let script = "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do /bin/sh -c 'exit 3'; done; done";
    command.args(["run", "--as-root", "-o"]).arg(&file).args(["--", "sh", "-c", script]);
    let output = command.output()?;
    ensure!(output.status.code() == Some(3), "{}", output.status);
    let book = book(&file)?;
    ensure!(book.losses.is_empty() && book.notices.is_empty(), "{:?} {:?}", book.losses, book.notices);
    ensure!(book.processes.len() == 101 && book.processes.iter().all(|p| p.exit_code == Some(3)));
    Ok(())
}

/// A call: function, depth, the function around it.
type Seen = (String, u32, String);

/// Runs a program that defines CUDA's functions itself; gives what was recorded of its calls and its missed returns.
fn odd(way: &str) -> Result<(Vec<Seen>, u64)> {
    let (sim, file) = start()?;
    let program = sim.program("odd");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--lib").arg(&program).arg("--").arg(&program).arg(way);
    let output = command.output()?;
    ensure!(output.status.success() && output.stdout == b"done\n", "{way}: {}", output.status);
    let book = book(&file)?;
    ensure!(book.outcome == Some(Outcome::Exited { code: 0 }), "{:?}", book.outcome);
    let missed = book.losses.get("missed_return").copied().unwrap_or_default();
    ensure!(book.losses.keys().all(|why| why == "missed_return"), "{:?}", book.losses);
    let calls = calls(&file)?.into_iter().map(|call| (call.api, call.depth, call.inside)).collect();
    Ok((calls, missed))
}

/// What each of the two calls that return leaves: the inner function, then the outer one.
fn two_calls() -> Vec<Seen> {
    let one = [("cudaMalloc", 1, "cudaMallocHost"), ("cudaMallocHost", 0, "")];
    one.iter().chain(&one).map(|(api, depth, inside)| ((*api).to_owned(), *depth, (*inside).to_owned())).collect()
}

#[test]
fn calls_left_by_longjmp() -> Result<()> {
    let (calls, missed) = odd("jump")?;
    ensure!(calls == two_calls() && missed == 2, "{missed} missed: {calls:#?}");
    Ok(())
}

#[test]
fn calls_left_by_longjmp_and_a_deeper_one_after_them() -> Result<()> {
    let (calls, missed) = odd("jump_deep")?;
    ensure!(calls == two_calls() && missed == 2, "{missed} missed: {calls:#?}");
    Ok(())
}

/// The thread is gone: nothing was missed.
#[test]
fn calls_in_which_their_thread_ends() -> Result<()> {
    let (calls, missed) = odd("exit")?;
    ensure!(calls == two_calls() && missed == 0, "{missed} missed: {calls:#?}");
    Ok(())
}
