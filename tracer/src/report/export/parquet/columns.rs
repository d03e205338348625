//! Columns: adding one is adding a field of [`Row`] and a row of [`COLUMNS`].

use parquet::data_type::ByteArray;

/// A row of the table. Texts are shared: equal ones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) time_ns: i64,
    pub(super) unix_ns: i64,
    pub(super) event: Option<ByteArray>,
    pub(super) pid: i64,
    pub(super) tid: Option<i64>,
    pub(super) rank: Option<ByteArray>,
    pub(super) role: Option<ByteArray>,
    pub(super) device: Option<i64>,
    pub(super) gpu: Option<ByteArray>,
    pub(super) gpu_uuid: Option<ByteArray>,
    pub(super) phase: Option<ByteArray>,
    pub(super) kind: Option<ByteArray>,
    pub(super) owner: Option<ByteArray>,
    pub(super) api: Option<ByteArray>,
    pub(super) bytes: Option<i64>,
    pub(super) live_bytes_after: Option<i64>,
    pub(super) nvml_bytes: Option<i64>,
    pub(super) free_bytes: Option<i64>,
    pub(super) total_bytes: Option<i64>,
    pub(super) result: Option<i64>,
    pub(super) duration_ns: Option<i64>,
    pub(super) depth: Option<i64>,
    pub(super) address: Option<i64>,
    pub(super) allocation: Option<i64>,
    pub(super) stack: Option<u32>,
}

/// How a column's values are got from a row.
pub(super) enum Get {
    /// Always there.
    Int(fn(&Row) -> i64),
    /// The same, as a point in time, nanoseconds since the Unix epoch.
    Time(fn(&Row) -> i64),
    /// Null where unknown.
    Maybe(fn(&Row) -> Option<i64>),
    /// Null where unknown.
    Text(fn(&Row) -> Option<&ByteArray>),
    /// Frames of a stack, outermost first; null without one.
    Stack(fn(&Row) -> Option<u32>),
}

/// All columns, in order (docs/export.md says what they mean).
pub(super) const COLUMNS: [(&str, Get); 25] = [
    ("time_ns", Get::Int(|row| row.time_ns)),
    ("time", Get::Time(|row| row.unix_ns)),
    ("event", Get::Text(|row| row.event.as_ref())),
    ("pid", Get::Int(|row| row.pid)),
    ("tid", Get::Maybe(|row| row.tid)),
    ("rank", Get::Text(|row| row.rank.as_ref())),
    ("role", Get::Text(|row| row.role.as_ref())),
    ("device", Get::Maybe(|row| row.device)),
    ("gpu", Get::Text(|row| row.gpu.as_ref())),
    ("gpu_uuid", Get::Text(|row| row.gpu_uuid.as_ref())),
    ("phase", Get::Text(|row| row.phase.as_ref())),
    ("kind", Get::Text(|row| row.kind.as_ref())),
    ("owner", Get::Text(|row| row.owner.as_ref())),
    ("api", Get::Text(|row| row.api.as_ref())),
    ("bytes", Get::Maybe(|row| row.bytes)),
    ("live_bytes_after", Get::Maybe(|row| row.live_bytes_after)),
    ("nvml_bytes", Get::Maybe(|row| row.nvml_bytes)),
    ("free_bytes", Get::Maybe(|row| row.free_bytes)),
    ("total_bytes", Get::Maybe(|row| row.total_bytes)),
    ("result", Get::Maybe(|row| row.result)),
    ("duration_ns", Get::Maybe(|row| row.duration_ns)),
    ("depth", Get::Maybe(|row| row.depth)),
    ("address", Get::Maybe(|row| row.address)),
    ("allocation", Get::Maybe(|row| row.allocation)),
    ("stack", Get::Stack(|row| row.stack)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_documented() {
        let document = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/export.md"));
        let table: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
        for (name, _) in &COLUMNS {
            assert!(
                table.iter().any(|line| line.split(" | ").next().unwrap().contains(&format!("`{name}`"))),
                "{name}"
            );
        }
    }
}
