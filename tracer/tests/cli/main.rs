//! The command line, from outside.

mod place;

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use tracer::report::export::FORMATS;

use self::place::{EXITED, MIB, Place, command};

#[test]
fn help_usage_and_errors() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd").env("COLUMNS", "100");
}

#[test]
fn a_report_says_what_was_held_before_exit() {
    let text = Place::new(EXITED).stdout(&["report", "server.vrt"]);
    assert!(text.contains("Outcome: the command exited with code 0 after 3.000 s"), "{text}");
    assert!(text.contains("GPU memory at the end: 118.0 MiB in 1 allocation, by rank, device, kind"), "{text}");
    assert!(text.contains("41 python3 train.py"), "{text}");
    assert!(!text.contains('\x1b'), "no colours into a pipe");
}

#[test]
fn rules_of_ones_own_go_first_and_their_errors_are_one_line() {
    let place = Place::new(EXITED);
    let rules = "format = 1\n[[rule]]\nname = \"all\"\nphase = \"serving.mine\"\nkinds = [\"module\"]\n";
    std::fs::write(place.path("mine.toml"), rules).unwrap();
    let text = place.stdout(&["report", "server.vrt", "--rules", "mine.toml"]);
    assert!(text.contains("by rank, phase") && text.contains("serving.mine"), "{text}");
    let folded = place.stdout(&["export", "server.vrt", "--format", "folded", "--by", "phase", "--rules", "mine.toml"]);
    assert!(folded.starts_with("serving.mine;"), "{folded}");
    std::fs::write(place.path("bad.toml"), rules.replace("serving.mine", "mine")).unwrap();
    let error = place.failure(&["report", "server.vrt", "--rules", "bad.toml"]);
    assert!(error.contains("bad.toml: rule `all`: `mine` is no phase: write one of startup"), "{error}");
}

#[test]
fn json_is_exact() {
    let place = Place::new(EXITED);
    let json: serde_json::Value =
        serde_json::from_str(&place.stdout(&["report", "server.vrt", "--format", "json"])).unwrap();
    assert_eq!(json["schema"], "vramtrace.report/1");
    assert_eq!(json["outcome"]["kind"], "exited");
    let process = &json["processes"][0];
    assert_eq!((&process["pid"], &process["devices"][0]["live_bytes"]), (&41.into(), &(118 * MIB).into()));
}

#[test]
fn a_trace_that_breaks_off_says_so_first() {
    let text = Place::new(None).stdout(&["report", "server.vrt"]);
    assert!(text.lines().nth(1).unwrap().starts_with("TRUNCATED TRACE"), "{text}");
    assert!(text.contains("118.0 MiB"), "{text}");
}

#[test]
fn a_trace_cut_anywhere_is_read_or_refused_in_one_line() {
    let place = Place::new(EXITED);
    let whole = fs::read(place.trace()).unwrap();
    for length in [0, 1, 4, 9, whole.len() / 2] {
        fs::write(place.path("cut.vrt"), &whole[..length]).unwrap();
        let text = place.stdout(&["report", "cut.vrt"]);
        assert!(text.contains("TRUNCATED TRACE"), "{length}: {text}");
    }
}

#[test]
fn several_traces_are_reported_one_after_the_other() {
    let place = Place::new(EXITED);
    let text = place.stdout(&["report", "server.vrt", "server.vrt", "--by", "kind,kind"]);
    assert_eq!(text.matches("vramtrace report: server.vrt").count(), 2);
    assert!(text.contains("\n\nvramtrace report"), "an empty line stands between them");
}

#[test]
fn a_moment_that_is_not_there_is_named() {
    let place = Place::new(EXITED);
    let oom = place.failure(&["report", "server.vrt", "--at", "oom"]);
    assert!(oom.contains("server.vrt: no call failed for want of memory"), "{oom}");
    let late = place.failure(&["flamegraph", "server.vrt", "--at", "9s", "-o", "x.svg"]);
    assert!(late.contains("the trace ends 3.000 s after it began"), "{late}");
    assert!(!place.path("x.svg").exists(), "nothing is left behind");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let place = Place::new(EXITED);
    let mut head = command(place.directory.path(), &["report", "server.vrt"]);
    let mut child = head.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Closed before a byte is read, as by `| head -0`.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_flame_graph_says_where_it_is_and_replaces_nothing_unasked() {
    let place = Place::new(EXITED);
    let arguments = ["flamegraph", "server.vrt", "-o", "out.svg"];
    assert_eq!(place.stdout(&arguments), "out.svg: flame graph, opens in a web browser\n");
    let svg = fs::read_to_string(place.path("out.svg")).unwrap();
    assert!(svg.contains("server.vrt: GPU memory live at the end"));
    assert!(place.failure(&arguments).contains("out.svg exists; add --force"));
    place.stdout(&["flamegraph", "server.vrt", "-o", "out.svg", "--force"]);
    assert_eq!(place.stdout(&["flamegraph", "server.vrt", "-o", "-"]), svg, "equal traces give equal pictures");
}

#[test]
fn a_page_says_where_it_is_and_replaces_nothing_unasked() {
    let place = Place::new(EXITED);
    let arguments = ["html", "server.vrt", "--vs", "server.vrt", "-o", "out.html"];
    assert_eq!(place.stdout(&arguments), "out.html: report, opens in a web browser\n");
    let page = fs::read_to_string(place.path("out.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("\"total_delta_bytes\":0"));
    assert!(place.failure(&arguments).contains("out.html exists; add --force"));
    let late = place.failure(&["html", "server.vrt", "--at", "9s", "-o", "late.html"]);
    assert!(late.contains("server.vrt: the trace ends 3.000 s after it began"), "{late}");
}

#[test]
fn a_trace_is_never_overwritten_by_its_picture() {
    let place = Place::new(EXITED);
    let before = fs::read(place.trace()).unwrap();
    place.failure(&["flamegraph", "server.vrt", "-o", "server.vrt"]);
    place.failure(&["export", "server.vrt", "--format", "folded", "-o", "server.vrt"]);
    assert_eq!(fs::read(place.trace()).unwrap(), before);
}

#[test]
fn folded_stacks_go_to_a_pipe_or_a_file() {
    let place = Place::new(EXITED);
    let folded = place.stdout(&["export", "server.vrt", "--format", "folded"]);
    assert!(
        folded.starts_with("41 python3 train.py;[no stack];[no API call] (") && folded.ends_with(") 123731968\n"),
        "{folded}"
    );
    let said = place.said(&["export", "server.vrt", "--format", "folded", "-o", "out.folded"]);
    assert!(
        said.starts_with("vramtrace: wrote out.folded (") && said.contains("Open it: https://speedscope.app"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(place.path("out.folded")).unwrap(), folded);
}

#[test]
fn every_format_is_a_file_with_a_word_on_what_opens_it() {
    let place = Place::new(EXITED);
    for format in FORMATS.iter().filter(|format| !format.lines) {
        let arguments = ["export", "server.vrt", "--format", format.name];
        let file = format!("server.{}", format.extension);
        let said = place.said(&arguments);
        assert!(said.starts_with(&format!("vramtrace: wrote {file} (")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(&format.opens.replace("FILE", &file)), "{said}");
        let written = fs::read(place.path(&file)).unwrap();
        assert!(!written.is_empty());
        assert!(place.failure(&arguments).contains("--force"));
        // The same bytes go to a pipe.
        let piped = place.vramtrace(&["export", "server.vrt", "--format", format.name, "-o", "-"]);
        assert!(piped.stderr.is_empty() && piped.stdout == written, "{}", format.name);
    }
}

#[test]
fn an_export_is_compressed_by_its_name() {
    let place = Place::new(EXITED);
    place.said(&["export", "server.vrt", "--format", "perfetto", "-o", "a.json"]);
    place.said(&["export", "server.vrt", "--format", "perfetto", "-o", "a.json.gz"]);
    let mut unpacked = Vec::new();
    let packed = fs::File::open(place.path("a.json.gz")).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, fs::read(place.path("a.json")).unwrap());
}

#[test]
fn an_option_that_would_do_nothing_is_refused() {
    let place = Place::new(EXITED);
    let error = place.failure(&["export", "server.vrt", "--format", "parquet", "--at", "peak"]);
    assert!(error.contains("--at means nothing for parquet"), "{error}");
    assert!(error.contains("folded, speedscope, pprof, torch-snapshot"), "{error}");
    let late = place.failure(&["export", "server.vrt", "--format", "pprof", "--at", "9s"]);
    assert!(late.contains("the trace ends 3.000 s after it began"), "{late}");
    assert!(!place.path("server.pb.gz").exists());
}

#[test]
fn the_trace_is_no_place_for_its_export() {
    let place = Place::new(EXITED);
    let before = fs::read(place.trace()).unwrap();
    let error = place.failure(&["export", "server.vrt", "--format", "pprof", "-o", "./server.vrt", "--force"]);
    assert!(error.contains("is the trace itself"), "{error}");
    assert_eq!(fs::read(place.trace()).unwrap(), before);
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let place = Place::new(EXITED);
    for format in &FORMATS {
        let error = place.failure(&["export", "server.vrt", "--format", format.name, "-o", "/dev/full"]);
        assert!(error.contains("/dev/full") && error.contains("No space left on device"), "{}: {error}", format.name);
    }
}

#[test]
fn a_trace_from_a_pipe_is_refused_where_it_is_read_twice() {
    let place = Place::new(EXITED);
    let from_pipe = |format: &str| {
        let mut cat = Command::new("cat").arg(place.trace()).stdout(Stdio::piped()).spawn().unwrap();
        let mut export = command(place.directory.path(), &["export", "/dev/stdin", "--format", format, "-o", "-"]);
        let output = export.stdin(cat.stdout.take().unwrap()).output().unwrap();
        cat.wait().unwrap();
        output
    };
    assert!(from_pipe("speedscope").status.success());
    let output = from_pipe("parquet");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("save it to a file first"), "{error}");
}

#[test]
fn completions_know_commands_and_formats() {
    let place = Place::new(EXITED);
    for shell in ["bash", "zsh", "fish"] {
        let script = place.stdout(&["completions", shell]);
        assert!(script.contains("flamegraph") && script.contains("torch-snapshot"), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new(EXITED);
    place.stdout(&["man", "."]);
    for page in ["vramtrace", "vramtrace-run", "vramtrace-report", "vramtrace-export", "vramtrace-check"] {
        let text = fs::read_to_string(place.path(&format!("{page}.1"))).unwrap();
        assert!(text.contains(".SH NAME") && text.contains(".SH EXAMPLES"), "{page}");
    }
    let missing = place.failure(&["man", "nowhere"]);
    assert!(missing.contains("cannot write nowhere/vramtrace-"), "{missing}");
}

#[test]
fn under_sudo_files_belong_to_the_invoking_user() {
    const NOBODY: u32 = 65534;
    let place = Place::new(EXITED);
    let sudo = |name: &str| {
        let mut command = command(place.directory.path(), &["flamegraph", "server.vrt", "-o", name]);
        command.envs([("SUDO_UID", "65534"), ("SUDO_GID", "65534")]).output().unwrap()
    };
    // Only root can give files away; for others SUDO_UID means nothing.
    let user = nix::unistd::geteuid();
    if user.is_root() {
        let refused = sudo("out.svg");
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(
            !refused.status.success() && error.contains("the file would belong to nobody, who called sudo"),
            "{error}"
        );
        std::os::unix::fs::chown(place.directory.path(), Some(NOBODY), None).unwrap();
    }
    assert!(sudo("out.svg").status.success());
    let expected = if user.is_root() { NOBODY } else { user.as_raw() };
    assert_eq!(fs::metadata(place.path("out.svg")).unwrap().uid(), expected);
}

#[test]
fn names_in_errors_cannot_steer_the_terminal() {
    let error = Place::new(None).failure(&["report", "\x1b[2Jgone\n.vrt"]);
    assert!(error.contains("\\u{1b}[2Jgone") && !error.contains('\x1b'), "{error:?}");
}
