//! What servers write about the sizing of their KV cache.

use std::sync::LazyLock;

use regex::Regex;

use crate::ledger::Book;
use crate::lifecycle::logs;

/// A line of a process, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) struct Said<'b> {
    /// When.
    pub(in crate::report) t: u64,
    /// What follows the prefix.
    pub(in crate::report) message: &'b str,
}

/// The lines of each process, in order.
pub(in crate::report) fn by_process(book: &Book) -> Vec<Vec<Said<'_>>> {
    let mut lines = vec![Vec::new(); book.processes.len()];
    for log in &book.logs {
        if let Some(lines) = lines.get_mut(log.process) {
            lines.extend(logs::pieces(&log.text).map(|piece| Said { t: log.t, message: logs::parse(piece).message }));
        }
    }
    lines
}

/// Beginnings of lines that `SGLang` writes once its pool stands.
const POOL: [&str; 5] = [
    "KV Cache is allocated",
    "Mamba Cache is allocated",
    "SWAKVPool mem usage",
    "Use sliding window memory pool",
    "Memory pool end",
];

/// Parts of what servers raise when no KV cache fits: `SGLang`'s `pool_configurator.py` and `kv_cache_configurator.py`,
/// vLLM's `kv_cache_utils.py`.
const NO_POOL: [&str; 3] = [
    "Not enough memory. Please try to increase --mem-fraction-static",
    "no GPU memory for the KV cache",
    "No available memory for the cache blocks",
];

/// Parts of other errors about memory: `PyTorch`'s, and `SGLang`'s check that ranks have the same to begin with.
const ERRORS: [&str; 4] =
    ["CUDA out of memory", "CUDA error: out of memory", "memory capacity is unbalanced", "Failed to CUDA"];

static KV_SIZES: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"#tokens: (?P<tokens>\d{1,15}), (?:K size: (?P<k>\d{1,9}\.\d\d) GB, V|KV) size: (?P<v>\d{1,9}\.\d\d) GB")
});
static TORCH: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?P<used>[\d.]{1,12}) (?P<u>[GM])iB is allocated by PyTorch, and (?P<slack>[\d.]{1,12}) (?P<s>[GMK])iB is reserved by PyTorch but unallocated",
    )
});
static GIB: LazyLock<Regex> = LazyLock::new(|| regex(r"(?P<sign>-?)(?P<n>\d{1,9}(?:\.\d{1,4})?) GiB"));
static TOKENS: LazyLock<Regex> = LazyLock::new(|| regex(r"GPU KV cache size: (?P<n>[\d,]{1,20}) tokens"));
static TOO_LITTLE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"Free memory on device.{0,40} \((?P<free>[\d.]{1,12})/(?P<total>[\d.]{1,12}) GiB\) on startup is less than desired GPU memory utilization \((?P<fraction>[\d.]{1,8}), (?P<wanted>[\d.]{1,12}) GiB\)",
    )
});

#[expect(clippy::expect_used, reason = "constant patterns: a test compiles every one")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// What a line says of the KV cache that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// Tokens that fit.
    pub(super) tokens: u64,
    /// K and V together, bytes; each was rounded to a hundredth of a GiB.
    pub(super) bytes: u64,
}

/// What vLLM says when less is free than it is to use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TooLittle {
    pub(super) free: u64,
    pub(super) total: u64,
    pub(super) fraction: f64,
    pub(super) wanted: u64,
}

impl Said<'_> {
    /// True for a line that comes after the pool was allocated.
    pub(super) fn is_of_pool(&self) -> bool {
        POOL.iter().any(|begin| self.message.starts_with(begin))
    }

    /// True for the error that no pool fits.
    pub(super) fn is_no_pool(&self) -> bool {
        // A traceback shows the line of code that raises before the error itself.
        let is_code = self.message.trim_start().starts_with("raise ") || self.message.contains("msg = ");
        !is_code && NO_POOL.iter().any(|part| self.message.contains(part))
    }

    /// True for an error about memory.
    pub(in crate::report) fn is_memory_error(&self) -> bool {
        self.is_no_pool() || self.too_little().is_some() || ERRORS.iter().any(|part| self.message.contains(part))
    }

    /// Bytes that `PyTorch` had handed out, and had reserved beside, as `torch.OutOfMemoryError` says.
    pub(in crate::report) fn torch_memory(&self) -> Option<(u64, u64)> {
        let found = TORCH.captures(self.message)?;
        let size = |number: &str, unit: &str| {
            let bytes = gib(&found[number])?;
            Some(match &found[unit] {
                "G" => bytes,
                "M" => bytes >> 10,
                _ => bytes >> 20,
            })
        };
        Some((size("used", "u")?, size("slack", "s")?))
    }

    /// `KV Cache is allocated. …`.
    pub(super) fn pool(&self) -> Option<Pool> {
        let found = KV_SIZES.captures(self.message).filter(|_| self.message.starts_with("KV Cache is allocated"))?;
        let size = |name: &str| found.name(name).and_then(|text| gib(text.as_str()));
        let bytes = size("v")? + size("k").unwrap_or(0);
        Some(Pool { tokens: found["tokens"].parse().ok()?, bytes })
    }

    /// Size behind `before` in a line of vLLM, with its sign.
    pub(super) fn gib_after(&self, before: &str) -> Option<i64> {
        let (_, after) = self.message.split_once(before)?;
        let found = GIB.captures(after).filter(|found| found.get(0).is_some_and(|all| all.start() <= 1))?;
        let size = i64::try_from(gib(&found["n"])?).ok()?;
        Some(if found["sign"].is_empty() { size } else { -size })
    }

    /// `GPU KV cache size: 1,234 tokens`.
    pub(super) fn vllm_tokens(&self) -> Option<u64> {
        TOKENS.captures(self.message)?["n"].replace(',', "").parse().ok()
    }

    /// `Free memory on device …`.
    pub(super) fn too_little(&self) -> Option<TooLittle> {
        let found = TOO_LITTLE.captures(self.message)?;
        let (free, total, wanted) = (gib(&found["free"])?, gib(&found["total"])?, gib(&found["wanted"])?);
        Some(TooLittle { free, total, wanted, fraction: found["fraction"].parse().ok()? })
    }
}

/// `20.69` GiB in bytes.
fn gib(text: &str) -> Option<u64> {
    let value: f64 = text.parse().ok()?;
    (value.is_finite() && (0.0..1e9).contains(&value)).then(|| (value * f64::from(1 << 30)).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str) -> Said<'_> {
        Said { t: 0, message }
    }

    #[test]
    fn the_patterns_compile() {
        for pattern in [&KV_SIZES, &GIB, &TORCH, &TOKENS, &TOO_LITTLE] {
            LazyLock::force(pattern);
        }
    }

    #[test]
    fn pools_of_several_versions() {
        let both =
            said("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 2711314, K size: 20.69 GB, V size: 20.69 GB");
        let old = said("KV Cache is allocated. #tokens: 10, KV size: 0.50 GB");
        assert_eq!(both.pool().map(|pool| (pool.tokens, pool.bytes >> 20)), Some((2_711_314, 42_373)));
        assert_eq!(old.pool(), Some(Pool { tokens: 10, bytes: 1 << 29 }));
        assert!(both.is_of_pool() && said("Memory pool end. avail mem=1.00 GB").pool().is_none());
        assert!(said("Mamba Cache is allocated. #tokens: 10, KV size: 0.50 GB").pool().is_none());
    }

    #[test]
    fn lines_of_vllm() {
        assert_eq!(
            said("Available KV cache memory: -1.50 GiB").gib_after("Available KV cache memory:"),
            Some(-3 << 29)
        );
        assert_eq!(said("Available KV cache memory: much").gib_after("Available KV cache memory:"), None);
        assert_eq!(said("GPU KV cache size: 1,234,567 tokens").vllm_tokens(), Some(1_234_567));
        let line = "ValueError: Free memory on device cuda:0 (12.00/24.00 GiB) on startup is less than desired GPU memory utilization (0.92, 22.08 GiB). Decrease";
        let found = said(line).too_little().unwrap();
        assert_eq!((found.free >> 30, found.total >> 30, found.fraction), (12, 24, 0.92));
        assert!(
            !said("    raise RuntimeError(\"Not enough memory. Please try to increase --mem-fraction-static.\")")
                .is_no_pool()
        );
        assert!(said("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.").is_no_pool());
    }
}
