// Words and tables that say what the time line draws.

/** How exact the tracks are. */
function timeNote() {
  const rough = tracks.filter((track) => !track.exact);
  const exact = tracks.length - rough.length;
  const changes = tracks.reduce((sum, track) => sum + track.changes, 0);
  const parts = [];
  if (exact > 0) parts.push(`${rough.length ? counted(exact, "track") + " show" : "Every track shows"} each change`);
  if (rough.length > 0) {
    const which = exact ? counted(rough.length, "track") : "Tracks";
    parts.push(`${which} are drawn in buckets of ${duration(timeline.bucket_ns)}: the height is the most held in each, the thin line the least`);
  }
  const more = timeline.left_out ? ` ${counted(timeline.left_out, "process")} with less memory are left out.` : "";
  return el("p", { class: "note", id: "time-note" }, `Live bytes by ${timeline.by}. ${parts.join("; ")} (${counted(changes, "moment")} of change).${more}`);
}

function marksLegend() {
  const mark = (kind, shape, text) => el("li", {}, svgMark(kind, shape), text);
  const some = (list) => tracks.some(list);
  return el(
    "ul",
    { class: "legend", "aria-label": "Marks" },
    timeline.layers.map((layer) => el("li", {}, swatch(layer), layer)),
    some((track) => track.failures.length) && mark("fail", "M2 2l8 8m0 -8l-8 8", "failed call"),
    some((track) => track.nvml.samples) && mark("nvml", "M6 3a3 3 0 1 0 .1 0z", "NVML's figure for the process"),
    some((track) => track.free.readings) && mark("free", "M6 1l5 5l-5 5l-5 -5z", "GPU in use, as the process read it"),
  );
}

function svgMark(kind, path) {
  const mark = svg("svg", { width: 12, height: 12, viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("path", { class: kind, d: path }));
  mark.style.verticalAlign = "-1px", (mark.style.marginRight = "5px");
  return mark;
}

/** The tracks at even steps of time, for those who cannot see them. */
function asTable() {
  const details = el("details", {}, el("summary", {}, "Time line as a table"));
  details.addEventListener("toggle", () => details.children.length < 2 && details.append(build()));
  const build = () => {
    const times = Array.from({ length: 25 }, (_, n) => Math.round((timeline.end_ns * n) / 24));
    const heads = ["Time", ...tracks.map((track) => ({ text: track.rank, n: 1 }))];
    const rows = times.map((t) => [duration(t), ...tracks.map((track) => bytes(track.total[pointAt(track, t)] ?? 0))]);
    return table("Live bytes at even steps of time", heads, rows);
  };
  return details;
}

/** Free memory as the processes read it, beside what they held. */
function readings() {
  const all = tracks.flatMap((track) => track.free.shown.map(([t, free, total]) => ({ track, t, free, total })));
  if (all.length === 0) return null;
  const count = tracks.reduce((sum, track) => sum + track.free.readings, 0);
  const kept = all.sort((a, b) => a.t - b.t).slice(0, 300);
  const rows = kept.map(({ track, t, free, total }) => [
    duration(t), name(track.rank), bytes(free), bytes(total), bytes(track.total[pointAt(track, t)] ?? 0),
  ]);
  const heads = ["Time", "Process", { text: "Free", n: 1 }, { text: "Of", n: 1 }, { text: "The process held", n: 1 }];
  const caption = `Free memory as the processes read it: ${kept.length} of ${counted(count, "reading")}; the least of each ${duration(timeline.bucket_ns)}`;
  return el("details", {}, el("summary", {}, `Memory readings (${count})`), table(caption, heads, rows));
}
