//! Budgets and verdicts of real `SGLang` runs on H200s: what the servers printed of their KV pools, and what two runs that
//! differ in one setting come to.

use live_tests::servers::{TP1, TP2_OFF, TP2_ON, book};
use tracer::lifecycle::Axes;
use tracer::report::diff::{Diff, Question, Run};
use tracer::report::explain::kv_budget::kv_budgets;

const MIB: u64 = 1 << 20;

/// The KV pool that `SGLang` printed is the one that its formula gives for what it printed of free memory.
#[test]
fn kv_budgets_of_sglang() {
    // K and V as printed (GiB, each rounded to a hundredth), tokens, and their bytes by the model's shape: bf16, 8 layers, heads
    // of 64, 8 heads for keys and for values.
    for (server, printed, tokens, of_a_token) in
        [(TP1, 41.38, 2_711_314, 16_384), (TP2_ON, 41.32, 5_415_308, 8192), (TP2_OFF, 41.32, 5_416_664, 8192)]
    {
        let book = book(&server);
        let budgets = kv_budgets(&Axes::new(&book));
        assert_eq!(budgets.len(), server.ranks.len(), "{}", server.name);
        for budget in &budgets {
            assert_eq!((budget.mem_fraction_static, budget.fits), (Some(0.3), Some(true)));
            assert_eq!(budget.tokens, Some(tokens));
            assert_eq!(budget.versions.as_deref(), Some(">=0.5.14, <=0.5.19"), "it was 0.5.17");
            let rest = u64::try_from(budget.rest_bytes.expect("a rest")).expect("room");
            // Figures of free memory are printed to a hundredth of a GiB: A's counts once, P's 0.7 times.
            let exact = tokens * of_a_token;
            assert!(rest.abs_diff(exact) < (1 << 30) / 100, "{}: {rest} is not {exact}", server.name);
            let printed = (printed * f64::from(1 << 30)) as u64;
            assert!(budget.printed_pool_bytes.expect("sizes").abs_diff(printed) < 1 << 20);
            // The ledger has the tables of requests and tokens too (88 and 108 MiB), and what pages round up.
            let pool = budget.pool_bytes.expect("a pool");
            assert!(pool >= exact && pool - exact < 144 * MIB, "{}: {pool} is not {exact}", server.name);
            assert!(budget.missing.is_empty(), "{:?}", budget.missing);
        }
    }
}

/// The one setting that differs is named with what it did: these recordings have no stacks that would tell more.
#[test]
fn verdict_on_the_recorded_pair() {
    let books = [book(&TP2_OFF), book(&TP2_ON)];
    let axes = books.each_ref().map(Axes::new);
    let [off, on] = [0, 1].map(|n| Run { name: ["off.vrt", "on.vrt"][n], axes: &axes[n] });
    let verdict = Diff::new(&off, &on, &Question::default()).expect("a comparison").verdict;
    let first = &verdict.suspects[0];
    // Net at ready, `on` is 82 MiB a rank smaller: nvidia-smi said 45,470 and 45,552 MiB.
    assert_eq!((first.kind, first.bytes), ("custom_allreduce", Some((-2 * 82) << 20)), "{}", verdict.summary);
    let parts = [
        "disable_custom_all_reduce True → False is all that differs",
        "CUDA graphs -164.0 MiB a rank",
        "Distributed init beside NCCL and custom all-reduce +102.0 MiB a rank",
        "in all -164.0 MiB",
    ];
    for part in parts {
        assert!(verdict.summary.contains(part), "{part:?} is not in {}", verdict.summary);
    }
    // The pool follows from it.
    let pool = verdict.suspects.iter().find(|suspect| suspect.kind == "kv_budget").expect("the pool");
    assert!(pool.text.starts_with("The budget of the KV pool differs by -10.2 MiB a rank"), "{}", pool.text);
    let swapped = Diff::new(&on, &off, &Question::default()).expect("a comparison").verdict;
    assert_eq!(swapped.suspects[0].bytes, Some((2 * 82) << 20));
}
