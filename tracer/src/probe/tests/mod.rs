//! Checks of the table as a whole, and of decoding.

mod decode;
mod table;

const C10: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";
const C10_OOM: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
