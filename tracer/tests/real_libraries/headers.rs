//! The table's prototypes against CUDA's headers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use tracer::probe::{self, Lib};

/// Directories that hold `include`.
pub(crate) const VERSIONS: [&str; 3] = ["cudart-11.8", "cudart-12.9", "cudart-13"];

/// Parameter types of every exported function that `cuda.h` and `cuda_runtime_api.h` declare.
pub(crate) fn prototypes(version: &str) -> BTreeMap<String, String> {
    let mut all = declared(&header(version, "cuda.h"));
    all.extend(declared(&header(version, "cuda_runtime_api.h")));
    assert!(all.len() > 600, "{version}: the headers were not understood");
    all
}

fn header(version: &str, name: &str) -> String {
    let text = std::fs::read_to_string(super::real(&format!("{version}/include/{name}"))).unwrap();
    Regex::new(r"(?s)/\*.*?\*/|//[^\n]*").unwrap().replace_all(&text, "").into_owned()
}

/// Functions by exported name. Headers declare a function by its plain name and rename it by macro (`#define cuMemAlloc
/// cuMemAlloc_v2`); in the last part, for the library's own build, old ABIs stand under their exported names.
fn declared(text: &str) -> BTreeMap<String, String> {
    let old = text.rfind("#if defined(__CUDA_API_VERSION_INTERNAL)\n").unwrap_or(text.len());
    let renames = Regex::new(r"#\s*define\s+(cu\w+)\s+(?:__CUDA(?:RT)?_API_PT[SD][SZ]\()?(cu\w+)").unwrap();
    let renames: BTreeMap<&str, &str> =
        renames.captures_iter(&text[..old]).map(|c| c.extract()).map(|(_, [name, export])| (name, export)).collect();
    let prototype =
        Regex::new(r"(?:CUresult\s+CUDAAPI|cudaError_t\s+CUDARTAPI(?:_CDECL)?)\s+(\w+)\s*\(([^;{]*?)\)\s*;").unwrap();
    let mut all = BTreeMap::new();
    for found in prototype.captures_iter(text) {
        let (name, parameters) = (found.get(1).unwrap(), &found[2]);
        let export = if name.start() < old { renames.get(name.as_str()).copied() } else { None };
        // The runtime's C++ overloads repeat the C prototype with default arguments; the types agree.
        all.insert(export.unwrap_or(name.as_str()).to_owned(), types(parameters));
    }
    all
}

/// Parameter types without names, defaults and what does not change the ABI.
fn types(parameters: &str) -> String {
    static NOISE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"__dv\([^)]*\)|=[^,]*|\b(const|struct|enum)\b").unwrap());
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\S)\s*\b\w+$").unwrap());
    let plain = NOISE.replace_all(parameters, "");
    let one = |parameter: &str| {
        let words = parameter.split_whitespace().collect::<Vec<_>>().join(" ");
        if words == "void" { words } else { NAME.replace(&words, "$1").replace(' ', "") }
    };
    plain.split(',').map(one).collect::<Vec<_>>().join(", ")
}

#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn rows_have_the_prototypes_of_every_header() {
    let mut forms_seen = BTreeSet::new();
    for version in VERSIONS {
        let declared = prototypes(version);
        for (_, row) in probe::of(Lib::Cuda).chain(probe::of(Lib::Cudart)) {
            let plain = row.symbol.trim_end_matches("_ptsz");
            let Some(header) = declared.get(row.symbol).or_else(|| declared.get(plain)) else { continue };
            let forms = row.signature.split(" | ").map(|form| {
                let (_, parameters) = form.split_once('(').unwrap();
                (types(parameters.strip_suffix(')').unwrap()), form)
            });
            let found: Vec<_> = forms.filter(|(form, _)| form == header).collect();
            assert_eq!(found.len(), 1, "{version} {}: {} against {header}", row.symbol, row.signature);
            forms_seen.insert((row.symbol, found[0].1));
        }
    }
    // No row claims a form that no header has. Two functions are in no header.
    for (_, row) in probe::of(Lib::Cuda).chain(probe::of(Lib::Cudart)).filter(|(_, row)| !row.symbol.starts_with("__"))
    {
        for form in row.signature.split(" | ") {
            assert!(forms_seen.contains(&(row.symbol, form)), "no header has {} {form}", row.symbol);
        }
    }
}

/// `cudaTypedefs.h` names a pointer type for each ABI of a driver function by the version that brought it:
/// `PFN_cuMemAlloc_v3020`.
#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn driver_rows_are_dated_as_in_the_headers() {
    let text: String = VERSIONS.iter().map(|version| header(version, "cudaTypedefs.h")).collect();
    let types = Regex::new(r"\bPFN_(\w+?_v\d+)\b").unwrap();
    let dated: BTreeSet<&str> =
        types.captures_iter(&text).map(|c| c.extract().1).map(|[name]: [&str; 1]| name).collect();
    let suffix = Regex::new(r"(_v\d)?(_ptsz)?$").unwrap();
    for (_, row) in probe::of(Lib::Cuda) {
        let (major, minor) = row.since.split_once('.').unwrap();
        let version = major.parse::<u32>().unwrap() * 1000 + minor.parse::<u32>().unwrap() * 10;
        let name = format!("{}_v{version}", suffix.replace(row.symbol, ""));
        assert!(dated.contains(&*name), "{} does not date from {}", row.symbol, row.since);
    }
}
