//! The probe table against NVIDIA's own libraries and headers.
//!
//! `VRAMTRACE_REAL_LIBS` names a directory with the libraries of three CUDA runtimes, a driver library and the
//! runtimes' headers; `cargo xtask test` fetches them. By hand:
//!
//! - `cudart-11.8/libcudart.so.11.0` and `cudart-11.8/include/*.h` from the wheel `nvidia-cuda-runtime-cu11` 11.8.89,
//! - `cudart-12.9/libcudart.so.12` and `include` from `nvidia-cuda-runtime-cu12` 12.9.79,
//! - `cudart-13/libcudart.so.13` and `include` from `nvidia-cuda-runtime` 13.0.96,
//! - `libcuda/libcuda.so.1` from Debian's package `libcuda1` (non-free; driver branch 535 in Debian 12).

mod coverage;
mod headers;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use tracer::attach::elf::ElfFile;
use tracer::attach::find;
use tracer::attach::plan::Plan;
use tracer::probe::{self, Lib};

/// Libraries by their place in the directory.
const LIBRARIES: [(&str, Lib); 4] = [
    ("cudart-11.8/libcudart.so.11.0", Lib::Cudart),
    ("cudart-12.9/libcudart.so.12", Lib::Cudart),
    ("cudart-13/libcudart.so.13", Lib::Cudart),
    ("libcuda/libcuda.so.1", Lib::Cuda),
];

fn real(path: &str) -> PathBuf {
    let dir =
        std::env::var_os("VRAMTRACE_REAL_LIBS").expect("VRAMTRACE_REAL_LIBS must name the directory described above");
    let path = PathBuf::from(dir).join(path);
    assert!(path.exists(), "{} is not there", path.display());
    path
}

/// Names of the functions a library exports, by an independent reading of the file.
fn exports(path: &str) -> BTreeSet<String> {
    let bytes = std::fs::read(real(path)).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let defined = file.dynamic_symbols().filter(object::ObjectSymbol::is_definition);
    defined.map(|symbol| symbol.name().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn every_row_a_library_exports_is_placed() {
    let mut text = String::new();
    for (path, lib) in LIBRARIES {
        let file = ElfFile::open(&real(path)).unwrap();
        let plan = Plan::new(&file, probe::of(lib)).unwrap();
        assert_eq!(find::recognise(real(path).file_name().unwrap().to_str().unwrap()), Some(lib));
        assert!(file.build_id().is_some_and(|id| id.len() == 40 || id.len() == 32), "{path} has a build id");
        let exports = exports(path);
        let rows: BTreeSet<String> = probe::of(lib).map(|(_, probe)| probe.symbol.to_owned()).collect();
        assert_eq!(plan.points.len(), rows.intersection(&exports).count(), "{path}");
        let missing: Vec<_> = rows.difference(&exports).collect();
        assert_eq!(plan.missing, missing);
        writeln!(text, "{path}: soname {}", file.soname().unwrap_or_default()).unwrap();
        writeln!(text, "  placed {}, aliases {:?}, refused {:?}", plan.points.len(), plan.aliases, plan.refused)
            .unwrap();
        writeln!(text, "  missing:").unwrap();
        missing.iter().for_each(|symbol| writeln!(text, "    {symbol}").unwrap());
    }
    insta::assert_snapshot!(text);
}

#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn probes_sit_where_the_functions_begin() {
    for (path, lib) in LIBRARIES {
        let bytes = std::fs::read(real(path)).unwrap();
        let parsed = object::File::parse(&*bytes).unwrap();
        let plan = Plan::new(&ElfFile::open(&real(path)).unwrap(), probe::of(lib)).unwrap();
        for point in plan.points {
            let symbol = probe::by_id(point.probe).unwrap().symbol;
            let found = parsed.dynamic_symbols().find(|s| s.name() == Ok(symbol) && s.is_definition()).unwrap();
            // By sections, where the code under test goes by segments.
            let section = parsed.section_by_index(found.section_index().unwrap()).unwrap();
            let start = found.address() - section.address() + section.file_range().unwrap().0;
            let landing_pad = bytes[start as usize..].starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]);
            assert_eq!(point.offset, start + if landing_pad { 4 } else { 0 }, "{path} {symbol}");
        }
    }
}

#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn named_files_are_told_apart() {
    for (path, lib) in LIBRARIES {
        assert_eq!(find::named(&real(path)).unwrap().lib, lib, "{path}");
    }
}
