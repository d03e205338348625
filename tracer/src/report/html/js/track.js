// A track of the time line: its points decoded, its state at any time, its picture.

/** A track with differences summed up: `at` in nanoseconds, `parts` by layer, `total` at each point. */
function decode(track, width) {
  const at = running(track.at).map((n) => (track.exact ? n : n * width));
  const parts = Object.entries(track.parts).map(([layer, steps]) => [Number(layer), running(steps)]);
  const total = at.map((_, n) => parts.reduce((sum, [, held]) => sum + held[n], 0));
  const low = track.exact ? total : running(track.low), last = track.exact ? total : running(track.last);
  return { ...track, at, parts, total, low, last };
}

/** The point that holds at `t`, or −1 before the first. */
function pointAt(track, t) {
  let from = 0, to = track.at.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (track.at[middle] <= t) from = middle + 1;
    else to = middle;
  }
  return from - 1;
}

/** Steps of `track` from `t0` to `t1`, at most one a pixel column: of those in one the highest, and the least of all. */
function steps(track, t0, t1, pixels) {
  const first = pointAt(track, t0), scale = pixels / (t1 - t0);
  const found = [];
  for (let n = Math.max(first, 0); n < track.at.length && track.at[n] <= t1; n++) {
    const x = Math.max(0, Math.floor((track.at[n] - t0) * scale));
    const before = found[found.length - 1];
    if (before?.x === x) {
      before.low = Math.min(before.low, track.low[n]);
      if (track.total[n] > track.total[before.n]) before.n = n;
      before.after = n;
    } else {
      // What held until here reaches into this column.
      found.push({ x, n, low: track.low[n], after: n });
    }
  }
  return found;
}

const GUTTER = 54, TOP = 6;

/** Draws `track` into a picture `width` × `height` for the times of `view`; `most` is the top of its axis. */
function drawTrack(track, view, width, height, most, layers) {
  const plot = width - GUTTER, y = (n) => TOP + (height - TOP) * (1 - Math.min(n, most) / most);
  const x = (t) => GUTTER + ((t - view.from) / (view.to - view.from)) * plot;
  const found = steps(track, view.from, view.to, plot);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": trackLabel(track) });
  picture.append(...gridLines(width, y, most));
  let floor = found.map(() => 0);
  for (const [layer, held] of track.parts) {
    const roof = found.map(({ n }, i) => floor[i] + held[n]);
    picture.append(area(found, floor, roof, y, width, layers[layer]));
    const spot = labelSpot(found, floor, roof, y, width);
    if (spot) picture.append(svg("text", { ...spot, class: "label", "text-anchor": "middle" }, layers[layer]));
    floor = roof;
  }
  picture.append(lowLine(found, track, y, width));
  if (track.capacity && track.capacity <= most) {
    picture.append(svg("line", { class: "cap", x1: GUTTER, x2: width, y1: y(track.capacity), y2: y(track.capacity) }));
  }
  picture.append(...marks(track, view, x, y, height));
  picture.append(svg("text", { x: GUTTER + 6, y: TOP + 12, class: "who" }, clip(`${track.rank} · ${track.gpu_label}`, Math.floor(plot / 7))));
  return picture;
}

function trackLabel(track) {
  return `${track.rank} on ${track.gpu_label}: live bytes over time, peak ${human(track.peak_bytes)}`;
}

function clip(text, length) {
  return text.length > length ? `${text.slice(0, Math.max(1, length - 1))}…` : text;
}

/** Heights that can be read out: about `count` steps of 1, 2 or 5 units up to `most`, in binary bytes. */
function ticks(most, count) {
  const unit = 2 ** (10 * Math.floor(Math.log2(Math.max(most, 1)) / 10));
  const rough = most / unit / count, ten = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ten * ([1, 2, 5, 10].find((n) => n * ten >= rough) ?? 10);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, n) => n * step);
}

function gridLines(width, y, most) {
  const few = y(0) - y(most) < 100 ? 2 : 4;
  return ticks(most, few).flatMap((n) => [
    svg("line", { class: "grid", x1: GUTTER, x2: width, y1: y(n), y2: y(n) }),
    svg("text", { x: GUTTER - 6, y: Math.max(y(n) + 4, 10) - (n === 0 ? 4 : 0), "text-anchor": "end" }, tickText(n)),
  ]);
}

function tickText(n) {
  return n === 0 ? "0" : human(n).replace(/\.0+(?= )/, "");
}

/** One layer, as steps. */
function area(found, floor, roof, y, width, name) {
  const ends = found.map((_, i) => (i + 1 < found.length ? found[i + 1].x : width - GUTTER) + GUTTER);
  let path = "", i = 0;
  while (i < found.length) {
    if (roof[i] === floor[i]) (i += 1);
    else {
      const from = i;
      while (i < found.length && roof[i] > floor[i]) i += 1;
      path += `M${found[from].x + GUTTER} ${y(floor[from]).toFixed(1)}`;
      for (let n = from; n < i; n++) path += `V${y(roof[n]).toFixed(1)}H${ends[n]}`;
      for (let n = i - 1; n >= from; n--) path += `V${y(floor[n]).toFixed(1)}H${found[n].x + GUTTER}`;
      path += "Z";
    }
  }
  const shape = svg("path", { d: path }, svg("title", {}, name));
  shape.style.fill = color(name);
  return shape;
}

/** Where a layer's name fits: in the middle of the longest stretch that is high enough. */
function labelSpot(found, floor, roof, y, width) {
  let best = null;
  for (let i = 0; i < found.length; i++) {
    let top = y(roof[i]), bottom = y(floor[i]);
    const from = found[i].x;
    let n = i;
    while (n < found.length && Math.min(bottom, y(floor[n])) - Math.max(top, y(roof[n])) >= 13) {
      (bottom = Math.min(bottom, y(floor[n]))), (top = Math.max(top, y(roof[n]))), (n += 1);
    }
    const to = n < found.length ? found[n].x : width - GUTTER;
    if (n > i && to - from > 90 && (!best || to - from > best.long)) {
      best = { long: to - from, x: GUTTER + (from + to) / 2, y: (top + bottom) / 2 + 4 };
    }
    i = Math.max(i, n - 1);
  }
  return best && { x: best.x.toFixed(1), y: best.y.toFixed(1) };
}

/** The least that was held in each bucket or pixel, where it is not the most. */
function lowLine(found, track, y, width) {
  let path = "";
  found.forEach(({ x, n, low }, i) => {
    const end = (i + 1 < found.length ? found[i + 1].x : width - GUTTER) + GUTTER;
    if (low < track.total[n]) path += `M${x + GUTTER} ${y(low).toFixed(1)}H${Math.max(end, x + GUTTER + 1)}`;
  });
  return svg("path", { class: "low", d: path });
}

/** NVML's figures, readings and failures. */
function marks(track, view, x, y, height) {
  const within = ([t]) => t >= view.from && t <= view.to;
  const samples = track.nvml.shown.filter(within);
  // Circles that would touch become a line; those that differ from the ledger stay.
  const dense = samples.length > 1 && (x(view.to) - x(view.from)) / samples.length < 9;
  const off = ([, nvml, live, quiet]) => quiet === 1 && nvml !== live;
  const circle = ([t, nvml, live, quiet]) => {
    const tip = `NVML ${human(nvml)}, ledger ${human(live)}${quiet ? "" : " (calls in flight)"}`;
    const shape = { class: off([t, nvml, live, quiet]) ? "nvml off" : "nvml", cx: x(t).toFixed(1), cy: y(nvml).toFixed(1), r: 2.2 };
    return svg("circle", shape, svg("title", {}, tip));
  };
  const list = [];
  if (dense) list.push(svg("path", { class: "nvml-line", d: "M" + samples.map(([t, nvml]) => `${x(t).toFixed(1)} ${y(nvml).toFixed(1)}`).join("L") }));
  list.push(...samples.filter((sample) => !dense || off(sample)).map(circle));
  for (const [t, free, total] of track.free.shown.filter(within)) {
    const used = total === null ? null : total - free, cx = x(t), cy = used === null ? TOP + 4 : y(used);
    const path = `M${cx} ${cy - 4}l4 4l-4 4l-4 -4z`;
    const tip = `the process read ${human(free)} free${total === null ? "" : ` of ${human(total)}`}`;
    list.push(svg("path", { class: "free", d: path }, svg("title", {}, tip)));
  }
  for (const failure of track.failures.filter(({ t }) => within([t]))) {
    const cx = x(failure.t).toFixed(1);
    const asked = failure.requested_bytes === null ? "" : ` of ${human(failure.requested_bytes)}`;
    const path = `M${cx} ${TOP}V${height}M${cx - 4} ${TOP}l8 8m0 -8l-8 8`;
    list.push(svg("path", { class: "fail", d: path }, svg("title", {}, `${failure.api}${asked} failed in ${failure.phase}`)));
  }
  return list;
}
