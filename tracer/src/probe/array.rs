//! Bytes of a CUDA array, from its extents and element format (`cuda.h`, `driver_types.h`).

use std::collections::BTreeMap;

/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`, as in the runtime: depth counts layers and mip levels keep it.
const LAYERED_OR_CUBEMAP: u64 = 0x01 | 0x04;
/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`, as in the runtime: memory is mapped later.
const MAPPED_LATER: u64 = 0x40 | 0x80;
/// Mip levels an array can have: extents are below 2^32.
const MAX_LEVELS: u64 = 32;

/// Bytes the array's elements take, without alignment: what was asked for. None for planar and block-compressed
/// formats, for a missing field, and when the product overflows.
pub(super) fn bytes(fields: &BTreeMap<String, u64>) -> Option<u64> {
    let field = |name: &str| fields.get(name).copied();
    let flags = field("flags").unwrap_or(0);
    if flags & MAPPED_LATER != 0 {
        return Some(0);
    }
    let element = match field("format") {
        Some(format) => channel_bytes(format)?.checked_mul(field("channels")?)?,
        None => runtime_element(fields)?,
    };
    // An extent of 0 means that the array has no such dimension.
    let width = field("width")?;
    let height = field("height")?.max(1);
    let depth = field("depth").unwrap_or(0).max(1);
    let mut texels: u64 = 0;
    for level in 0..field("levels").unwrap_or(1).clamp(1, MAX_LEVELS) {
        let depth = if flags & LAYERED_OR_CUBEMAP == 0 { (depth >> level).max(1) } else { depth };
        let plane = (width >> level).max(1).checked_mul((height >> level).max(1))?;
        texels = texels.checked_add(plane.checked_mul(depth)?)?;
    }
    texels.checked_mul(element)
}

/// Bytes of one channel in the formats that have plain channels (`CUarray_format`).
fn channel_bytes(format: u64) -> Option<u64> {
    match format {
        0x01 | 0x08 => Some(1),
        0x02 | 0x09 | 0x10 => Some(2),
        0x03 | 0x0a | 0x20 => Some(4),
        _ => None,
    }
}

/// Bytes of an element in the runtime's form: bits of each channel. Kinds above 2 (`cudaChannelFormatKindFloat`) are
/// planar, block-compressed or normalised: their bits do not add up to a size.
fn runtime_element(fields: &BTreeMap<String, u64>) -> Option<u64> {
    if *fields.get("channel_kind")? > 2 {
        return None;
    }
    let bits = ["x_bits", "y_bits", "z_bits", "w_bits"].iter().map(|name| fields.get(*name)).sum::<Option<u64>>()?;
    (bits > 0 && bits.is_multiple_of(8)).then_some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
        list.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn driver_form_multiplies_extents_and_channels() {
        let flat = [("width", 640), ("height", 480), ("format", 0x20), ("channels", 4)];
        assert_eq!(bytes(&fields(&flat)), Some(640 * 480 * 16));
        let line = [("width", 100), ("height", 0), ("depth", 0), ("format", 0x01), ("channels", 1), ("flags", 0)];
        assert_eq!(bytes(&fields(&line)), Some(100));
    }

    #[test]
    fn runtime_form_adds_channel_bits() {
        let mut desc = fields(&[("x_bits", 8), ("y_bits", 8), ("z_bits", 8), ("w_bits", 8), ("channel_kind", 1)]);
        desc.extend(fields(&[("width", 4), ("height", 4), ("depth", 4), ("flags", 0)]));
        assert_eq!(bytes(&desc), Some(256));
        desc.insert("channel_kind".into(), 4);
        assert_eq!(bytes(&desc), None, "NV12 is planar");
    }

    #[test]
    fn mip_levels_halve_extents_but_not_layers() {
        let mut chain = fields(&[("width", 8), ("height", 8), ("depth", 8), ("format", 1), ("channels", 1)]);
        chain.insert("levels".into(), 4);
        assert_eq!(bytes(&chain), Some(512 + 64 + 8 + 1));
        chain.insert("flags".into(), 1);
        assert_eq!(bytes(&chain), Some(8 * (64 + 16 + 4 + 1)));
    }

    #[test]
    fn memory_mapped_later_is_not_asked_for_now() {
        let sparse = [("width", 1 << 20), ("height", 1 << 20), ("format", 0x20), ("channels", 4), ("flags", 0x40)];
        assert_eq!(bytes(&fields(&sparse)), Some(0));
    }

    #[test]
    fn unknown_or_absurd_input_has_no_size() {
        assert_eq!(bytes(&fields(&[("width", 8), ("height", 8), ("format", 0x91), ("channels", 4)])), None);
        assert_eq!(bytes(&fields(&[("width", u64::MAX), ("height", 2), ("format", 1), ("channels", 1)])), None);
        assert_eq!(bytes(&fields(&[("height", 2), ("format", 1), ("channels", 1)])), None);
    }
}
