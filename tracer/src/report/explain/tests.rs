//! Budgets of whole servers.

use super::*;
use crate::ledger::Kind;
use crate::lifecycle::Axes;
use crate::report::testbook::TestBook;

pub(in crate::report) const GIB: u64 = 1 << 30;
pub(in crate::report) const MIB: u64 = 1 << 20;
/// A hundredth of a GiB, as servers print it.
const CENTI: u64 = GIB / 100;

/// A simulated start of a server, to be told in the ways that versions differ in.
pub(in crate::report) struct Start {
    pub(in crate::report) ranks: u32,
    pub(in crate::report) fraction: &'static str,
    /// GPU memory that is free before the weights, and after.
    pub(in crate::report) free: (u64, u64),
    /// Sizes the pool, or dies of it.
    pub(in crate::report) pool: Option<u64>,
    /// Readings carry Python frames.
    pub(in crate::report) frames: bool,
    /// There are readings at all.
    pub(in crate::report) readings: bool,
    /// Bytes of the custom all-reduce's buffers, part of what is taken before the weights.
    pub(in crate::report) allreduce: u64,
}

impl Default for Start {
    fn default() -> Self {
        let free = (9490 * CENTI, 2170 * CENTI);
        Self { ranks: 2, fraction: "0.88", free, pool: Some(10 * GIB), frames: true, readings: true, allreduce: 0 }
    }
}

const INIT: &str = "sglang/srt/distributed/bootstrap.py: init_torch_distributed";
const PROFILE: &str = "sglang/srt/mem_cache/kv_cache_configurator.py: KVCacheConfigurator._profile_available_bytes";
const ALLREDUCE: &str =
    "sglang/srt/distributed/device_communicators/custom_all_reduce.py: CustomAllreduce.create_shared_buffer";
const LOAD: &str = "sglang/srt/model_executor/model_runner.py: ModelRunner.load_model";

impl Start {
    pub(in crate::report) fn book(&self) -> TestBook {
        let mut t = TestBook::new();
        let main = t.process(4100, "");
        t.log(
            main,
            &format!(
                "server_args=ServerArgs(tp_size={}, pp_size=1, mem_fraction_static={})",
                self.ranks, self.fraction
            ),
        );
        for n in 0..self.ranks {
            self.rank(&mut t, n);
        }
        t
    }

    fn reading(&self, t: &mut TestBook, process: usize, free: u64, by: &str) {
        let common = "sglang/srt/utils/common.py: get_available_gpu_memory";
        let stack = self.frames.then(|| t.python_stack(&[by, common, "torch/cuda/memory.py: mem_get_info"]));
        if self.readings {
            t.read(process, free, stack);
        }
    }

    fn rank(&self, t: &mut TestBook, n: u32) {
        let (process, gpu) = (t.process(4101 + n, &format!("sglang::scheduler_TP{n}")), t.gpu(n));
        t.book.processes[process].parent = Some(4100);
        let say = |t: &mut TestBook, line: &str| t.log(process, &format!("[2026-11-29 15:12:32 TP{n}] {line}"));
        // One rank has a little less before, another after.
        let before = self.free.0 + u64::from(n) * 8 * MIB;
        let after = self.free.1 + u64::from(self.ranks - 1 - n) * 8 * MIB;
        say(t, "Init torch distributed begin.");
        self.reading(t, process, before + GIB, INIT);
        t.allocate_kind(process, gpu, GIB, Kind::Context);
        if self.allreduce > 0 {
            t.allocate_by(process, gpu, self.allreduce, &[ALLREDUCE]);
        }
        self.reading(t, process, before, INIT);
        self.reading(t, process, before, INIT);
        say(t, "Init torch distributed ends. elapsed=1.00 s, mem usage=1.00 GB");
        t.allocate_kind(process, gpu, 64 * MIB, Kind::Channel);
        let hundredths = |free: u64| format!("{}.{:02} GB", free / GIB, free % GIB * 100 / GIB);
        self.reading(t, process, before - 64 * MIB, LOAD);
        say(t, &format!("Load weight begin. avail mem={}", hundredths(before - 64 * MIB)));
        t.allocate(process, gpu, before - after);
        self.reading(t, process, after, LOAD);
        say(
            t,
            &format!("Load weight end. elapsed=0.20 s, type=X, avail mem={}, mem usage=1.00 GB.", hundredths(after)),
        );
        self.reading(t, process, after, PROFILE);
        match self.pool {
            Some(pool) => {
                t.allocate(process, gpu, pool);
                say(t, "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4096, K size: 5.00 GB, V size: 5.00 GB");
                say(t, &format!("Memory pool end. avail mem={}", hundredths(after - pool)));
            }
            None => {
                say(t, "Scheduler hit an exception: Traceback");
                t.log(
                    process,
                    "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.55.",
                );
                t.exit(process, Some(1));
            }
        }
    }
}

pub(in crate::report) fn budgets(t: &TestBook) -> Vec<KvBudget> {
    kv_budget::kv_budgets(&Axes::new(&t.book))
}

#[test]
fn a_server_that_starts() {
    let budgets = budgets(&Start::default().book());
    let (a, p) = (2170 * CENTI, 9490 * CENTI);
    assert_eq!(budgets.len(), 2);
    for (budget, rank) in budgets.iter().zip(["TP0", "TP1"]) {
        assert_eq!(budget.rank, rank);
        assert_eq!((budget.available_bytes, budget.pre_load_bytes), (Some(a), Some(p)), "the least of both ranks");
        assert_eq!(budget.rest_bytes, Some(a as i64 - (p as f64 * 0.12).round() as i64));
        assert_eq!((budget.pool_bytes, budget.tokens, budget.fits), (Some(10 * GIB), Some(4096), Some(true)));
        assert_eq!(budget.versions.as_deref(), Some(">=0.5.17, <=0.5.19"));
        assert!(budget.missing.is_empty(), "{:?}", budget.missing);
    }
    assert_eq!(budgets[0].own_available_bytes, Some(a + 8 * MIB));
    let texts: Vec<_> = budgets[0].evidence.iter().map(|figure| figure.text.as_str()).collect();
    let expected = [
        "read in _profile_available_bytes (kv_cache_configurator.py) by TP1, the least of 2 ranks",
        "read in init_torch_distributed (bootstrap.py)",
        "0.88 printed in server_args",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn a_server_that_finds_no_room() {
    let start = Start { fraction: "0.55", pool: None, ..Start::default() };
    let budget = &budgets(&start.book())[0];
    assert_eq!((budget.fits, budget.pool_bytes, budget.tokens), (Some(false), None, None));
    assert_eq!(
        budget.sentence,
        "KV pool cannot be sized: 21.70 GiB free after the weights (A) - 94.90 GiB before them (P) × (1 - 0.55) = \
         -21.00 GiB; --mem-fraction-static 0.78 or more leaves room (0.78: 841.7 MiB)"
    );
    assert!(budget.error.as_ref().unwrap().contains("no GPU memory for the KV cache"));
}

/// Frames, order of lines and printed figures lead to the same budget.
#[test]
fn weaker_evidence_finds_the_same() {
    let exact = budgets(&Start::default().book()).remove(0);
    let by_order = budgets(&Start { frames: false, ..Start::default() }.book()).remove(0);
    let printed = budgets(&Start { readings: false, ..Start::default() }.book()).remove(0);
    assert_eq!(by_order.rest_bytes, exact.rest_bytes);
    let found = |budget: &KvBudget| budget.evidence.iter().map(|figure| figure.from).collect::<Vec<_>>();
    assert_eq!(found(&exact), [Found::ReadingByFrame, Found::ReadingByFrame, Found::Printed]);
    assert_eq!(found(&by_order), [Found::ReadingByOrder, Found::ReadingByOrder, Found::Printed]);
    assert_eq!(found(&printed), [Found::Printed; 3]);
    let off = printed.rest_bytes.unwrap().abs_diff(exact.rest_bytes.unwrap());
    assert!(off <= 2 * CENTI, "{off}");
    assert!(printed.evidence[1].text.ends_with("and 64.0 MiB taken since the line before"), "{:?}", printed.evidence);
}

#[test]
fn what_is_not_there_is_not_known() {
    let mut t = Start::default().book();
    t.book.logs.retain(|log| !log.text.starts_with("server_args"));
    let without_fraction = budgets(&t).remove(0);
    assert_eq!((without_fraction.rest_bytes, without_fraction.mem_fraction_static), (None, None));
    assert_eq!(without_fraction.fits, Some(true));
    assert!(without_fraction.sentence.contains("mem_fraction_static"), "{}", without_fraction.sentence);
    let mut t = Start::default().book();
    t.book.readings.clear();
    t.book.logs.retain(|log| !log.text.contains("Load weight"));
    let without_figures = budgets(&t).remove(0);
    assert_eq!(without_figures.missing.len(), 2);
    assert_eq!(without_figures.rest_bytes, None);
    assert!(budgets(&TestBook::new()).is_empty());
}

#[test]
fn ranks_that_were_not_traced_are_named() {
    let mut t = Start::default().book();
    t.book.logs[0].text = t.book.logs[0].text.replace("tp_size=2", "tp_size=16");
    assert_eq!(budgets(&t)[0].missing, ["the readings of 14 of 16 ranks, which were not traced"]);
}

#[test]
fn replicas_size_their_pools_apart() {
    for (dp_attention, expected) in [("False", [2000, 3000]), ("True", [2000, 2000])] {
        let mut t = TestBook::new();
        let main = t.process(1, "");
        t.log(main, &format!("server_args=ServerArgs(mem_fraction_static=0.9, enable_dp_attention={dp_attention})"));
        for n in 0..2 {
            let process = t.process(2 + n, &format!("sglang::scheduler_DP{n}"));
            t.book.processes[process].parent = Some(1);
            t.log(process, &format!("Load weight end. avail mem={}0.00 GB", 2 + n));
        }
        let available: Vec<_> = budgets(&t).iter().map(|budget| budget.available_bytes.unwrap() / CENTI).collect();
        assert_eq!(available, expected, "enable_dp_attention={dp_attention}");
    }
}

#[test]
fn vllm_that_starts_and_vllm_that_does_not() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(7, "VLLM::Worker_TP0"), t.gpu(0));
    t.log(process, "INFO 03-08 16:44:28 [utils.py:1] non-default args: {'gpu_memory_utilization': 0.9}");
    let init =
        t.python_stack(&["vllm/v1/worker/gpu_worker.py: Worker.init_device", "torch/cuda/memory.py: mem_get_info"]);
    t.read(process, 79 * GIB, Some(init));
    t.log(process, "INFO 03-08 16:44:28 [x.py:1] Model loading took 20.0000 GiB memory and 1.5 seconds");
    t.log(process, "INFO 03-08 16:44:28 [x.py:1] Available KV cache memory: 48.00 GiB");
    t.allocate(process, gpu, GIB);
    let fits = budgets(&t).remove(0);
    assert_eq!((fits.server, fits.fits, fits.rest_bytes), ("vllm", Some(true), Some(48 << 30)));
    assert_eq!(
        fits.sentence,
        "KV cache: 80.00 GiB × 0.9 = 72.00 GiB - 24.00 GiB not KV cache, 20.00 GiB of it weights = 48.00 GiB"
    );
    t.book.logs.last_mut().unwrap().text =
        "INFO 03-08 16:44:28 [x.py:1] Available KV cache memory: -1.00 GiB".to_owned();
    let short = budgets(&t).remove(0);
    assert_eq!((short.fits, short.smallest_fraction), (Some(false), Some(0.92)));
    assert!(
        short.sentence.starts_with("KV cache cannot be sized: ")
            && short.sentence.ends_with("0.92 or more leaves room")
    );
    let mut t = TestBook::new();
    let process = t.process(7, "VLLM::EngineCore");
    t.log(process, "ValueError: Free memory on device cuda:0 (12.00/24.00 GiB) on startup is less than desired GPU memory utilization (0.92, 22.08 GiB).");
    assert_eq!(
        budgets(&t).remove(0).sentence,
        "vLLM is to use 24.00 GiB × 0.92 = 22.08 GiB, but only 12.00 GiB was free at its start: 12.00 GiB was taken \
         already; free it, or --gpu-memory-utilization 0.5 at most"
    );
}
