//! Probed API calls.

use serde::{Deserialize, Serialize};

use super::{is_zero, is_zero_i64};

/// A probed API call returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// When it returned.
    pub t: u64,
    /// When it was entered.
    pub start: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Function, as in the probe table.
    pub api: String,
    /// Result (`CUresult`, `cudaError_t`, `ncclResult_t`); absent when 0, success.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub result: i64,
    /// Probed calls that enclose it on the thread.
    #[serde(skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Function of the call directly around it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub inside: String,
    /// Entry time of the outermost enclosing call (its own when there is none).
    pub outer: u64,
    /// Library number: index of its [`Library`] record.
    pub library: u32,
    /// Device address returned or given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Bytes asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Handle returned or given (VMM handle, pool, graph, array, context).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<u64>,
    /// CUDA device ordinal, where the call names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<i64>,
    /// Free bytes read (`cuMemGetInfo`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// Total bytes read (`cuMemGetInfo`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Further values by the role names of the probe table (`flags`, `offset`, `stream`, `limit`, `rank`, `nranks`, …).
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub more: std::collections::BTreeMap<String, u64>,
    /// True when a value the table names could not be read from the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// Call stack number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
}
