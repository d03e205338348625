// The time line: tracks over one axis of time, zoom, and a cursor that tells what was held at a moment.

const timeline = page.timeline;
const tracks = timeline.tracks.map((track) => ({
  ...decode(track, timeline.bucket_ns),
  capacity: report.gpus[track.gpu]?.total_bytes ?? null,
}));
const view = { from: 0, to: Math.max(timeline.end_ns, 1), at: 0 };

function time() {
  if (tracks.length === 0) {
    show("time", el("p", {}, "No traced process held GPU memory."));
    return;
  }
  const most = axisTop();
  const charts = el("div", { id: "tracks" });
  const axis = el("div", { id: "axis" });
  const slider = el("input", { type: "range", min: 0, max: 1000, value: 1000, "aria-label": "Moment" });
  const held = el("div", { id: "held" });
  const draw = () => {
    const width = Math.max(320, Math.round(charts.clientWidth));
    const tall = tracks.length <= 2 ? 210 : tracks.length <= 4 ? 140 : 96;
    // A track that would be a line at the bottom is given no more room than that takes.
    const height = (track) => (track.peak_bytes < most / 60 ? 46 : tall);
    charts.replaceChildren(...tracks.map((track) => chart(track, width, height(track), most, moveTo, zoomTo)));
    axis.replaceChildren(timeAxis(width));
    moveTo(view.at);
  };
  const moveTo = (t) => {
    view.at = Math.min(Math.max(t, view.from), view.to);
    const share = (view.at - view.from) / (view.to - view.from);
    slider.value = Math.round(share * 1000);
    slider.setAttribute("aria-valuetext", momentText());
    for (const line of charts.querySelectorAll(".cursor")) {
      const x = GUTTER + share * (line.ownerSVGElement.viewBox.baseVal.width - GUTTER);
      line.setAttribute("x1", x), line.setAttribute("x2", x);
    }
    held.replaceChildren(heldTable());
  };
  const zoomTo = (from, to) => {
    const least = Math.min(1000, timeline.end_ns);
    const wide = Math.min(Math.max(to - from, least), timeline.end_ns);
    view.from = Math.min(Math.max(0, from), timeline.end_ns - wide);
    view.to = Math.max(view.from + wide, 1);
    draw();
  };
  const by = (factor) => {
    const wide = (view.to - view.from) * factor, share = (view.at - view.from) / (view.to - view.from);
    zoomTo(view.at - wide * share, view.at + wide * (1 - share));
  };
  const shift = (share) => zoomTo(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);
  slider.addEventListener("input", () => moveTo(view.from + (slider.value / 1000) * (view.to - view.from)));
  slider.addEventListener("keydown", (event) => {
    const act = { "+": () => by(0.5), "=": () => by(0.5), "-": () => by(2), 0: () => zoomTo(0, timeline.end_ns) }[event.key];
    if (act) event.preventDefault(), act();
  });
  const button = (text, label, act) => el("button", { type: "button", "aria-label": label, onclick: act }, text);
  const controls = el(
    "div",
    { class: "controls", role: "group", "aria-label": "Zoom in time" },
    button("+", "Zoom in", () => by(0.5)), button("−", "Zoom out", () => by(2)),
    button("◂", "Earlier", () => shift(-0.5)), button("▸", "Later", () => shift(0.5)),
    button("Whole run", "Whole run", () => zoomTo(0, timeline.end_ns)),
    el("span", { class: "note" }, "Drag over a track to zoom in; the slider moves the cursor, + and − zoom, 0 shows all."),
  );
  show("time", timeNote(), marksLegend(), controls, charts, axis, el("div", { class: "cursor-row" }, slider), held, asTable(), readings());
  view.at = lastMoment();
  draw();
  new ResizeObserver(() => charts.firstChild?.viewBox?.baseVal.width !== Math.max(320, Math.round(charts.clientWidth)) && draw()).observe(charts);
}

/** The moment to begin with: the last at which something was held. */
function lastMoment() {
  return Math.max(0, ...columns.map(({ device }) => Math.min(device.at_ns, timeline.end_ns)));
}

/** Top of all tracks' axes: the GPU's size, unless that would press the tracks flat. */
function axisTop() {
  const peak = Math.max(1, ...tracks.map((track) => track.peak_bytes));
  const capacity = Math.max(0, ...tracks.map((track) => track.capacity ?? 0));
  return capacity >= peak && capacity < peak * 2.5 ? capacity * 1.02 : peak * 1.12;
}

/** A track's picture with its cursor, and what the pointer does on it. */
function chart(track, width, height, most, moveTo, zoomTo) {
  const picture = drawTrack(track, view, width, height, most, timeline.layers);
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: height });
  const drag = svg("rect", { class: "drag", y: TOP, height: height - TOP, width: 0, x: 0 });
  const hit = svg("rect", { class: "hit", x: GUTTER, y: 0, width: width - GUTTER, height });
  const at = (event) => {
    const box = hit.getBoundingClientRect();
    return view.from + (Math.min(Math.max(event.clientX - box.left, 0), box.width) / box.width) * (view.to - view.from);
  };
  const x = (t) => GUTTER + ((t - view.from) / (view.to - view.from)) * (width - GUTTER);
  let begun = null;
  hit.addEventListener("pointerdown", (event) => ((begun = at(event)), hit.setPointerCapture(event.pointerId)));
  hit.addEventListener("pointermove", (event) => {
    const t = at(event);
    moveTo(t);
    if (begun === null) return;
    drag.setAttribute("x", Math.min(x(begun), x(t)));
    drag.setAttribute("width", Math.abs(x(t) - x(begun)));
  });
  hit.addEventListener("pointerup", (event) => {
    const from = begun, to = at(event);
    begun = null;
    drag.setAttribute("width", 0);
    if (from !== null && Math.abs(x(to) - x(from)) > 5) zoomTo(Math.min(from, to), Math.max(from, to));
  });
  picture.append(drag, cursor, hit);
  picture.classList.add("track");
  return picture;
}

/** Times below all tracks. */
function timeAxis(width) {
  const picture = svg("svg", { viewBox: `0 0 ${width} 22`, "aria-hidden": "true" });
  const span = view.to - view.from, rough = span / Math.max(3, Math.floor(width / 140));
  const units = [1, 2, 5].flatMap((n) => Array.from({ length: 9 }, (_, e) => n * 10 ** e)).concat([15e9, 30e9, 60e9, 120e9, 300e9, 600e9, 1800e9, 3600e9, 7200e9, 21600e9, 43200e9, 86400e9]);
  const step = units.sort((a, b) => a - b).find((n) => n >= rough) ?? 86400e9 * Math.ceil(rough / 86400e9);
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = GUTTER + ((t - view.from) / span) * (width - GUTTER);
    const anchor = x > width - 30 ? "end" : x < GUTTER + 10 ? "start" : "middle";
    picture.append(svg("line", { class: "grid", x1: x, x2: x, y1: 0, y2: 5 }), svg("text", { x, y: 17, "text-anchor": anchor }, axisText(t, step)));
  }
  return picture;
}

/** A time on the axis, as exact as its steps. */
function axisText(t, step) {
  if (t === 0) return "0 s";
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / 1e9)));
  return step >= 60e9 ? duration(t) : t >= 120e9 ? `${Math.floor(t / 60e9)}:${((t / 1e9) % 60).toFixed(decimals).padStart(2, "0")} min` : `${(t / 1e9).toFixed(decimals)} s`;
}

/** Layer and bytes of a track at `t`, greatest first; what is shown of a bucket is its highest moment. */
function heldAt(track, t) {
  const n = pointAt(track, t);
  return n < 0 ? new Map() : new Map(track.parts.map(([layer, held]) => [layer, held[n]]));
}

function momentText() {
  const held = tracks.map((track) => `${track.rank} ${human(track.total[pointAt(track, view.at)] ?? 0)}`);
  return `${duration(view.at)}: ${held.slice(0, 16).join(", ")}`;
}

/** What was held at the cursor, by layer and track. */
function heldTable() {
  const maps = tracks.map((track) => heldAt(track, view.at));
  const used = timeline.layers.map((_, layer) => layer).filter((layer) => maps.some((map) => map.get(layer) > 0));
  const heads = [timeline.by, ...tracks.map((track) => ({ text: el("span", {}, name(track.rank), track.gpu_label), n: 1 }))];
  const figure = (n) => (n ? bytes(n) : "–");
  const rows = used.map((layer) => [[swatch(timeline.layers[layer]), timeline.layers[layer]], ...maps.map((map) => figure(map.get(layer)))]);
  rows.push(["All", ...tracks.map((track) => figure(track.total[pointAt(track, view.at)]))]);
  const bucketed = tracks.some((track) => !track.exact);
  return table(`Held ${duration(view.at)} after tracing began${bucketed ? ", at the highest moment of the bucket" : ""}`, heads, rows, { class: tracks.length > 6 ? "compact wide" : "compact" });
}
