// Where the memory is: a bar for each process and GPU, and a table of rank × phase coloured by size.

function where() {
  if (columns.length === 0) {
    show("where", el("p", {}, "No traced process held GPU memory."));
    return;
  }
  const place = el("div");
  let axis = page.timeline.by, value = "live_bytes";
  const draw = () => place.replaceChildren(bars(axis), heat(axis, value));
  const controls = el(
    "div",
    { class: "controls" },
    choice("Rows", rowChoices(axis), (chosen) => ((axis = chosen), draw())),
    choice("Figures", [["live_bytes", `held ${moment}`], ["allocated_bytes", "ever allocated"]], (chosen) => ((value = chosen), draw())),
  );
  show("where", controls, place);
  draw();
}

/** What rows may be, what suits the trace first. */
function rowChoices(first) {
  const all = ["phase", "kind", "owner"];
  return all.sort((a, b) => (b === first) - (a === first)).map((axis) => [axis, axis]);
}

/** Rank and GPU of a column. */
function columnName({ process, device }) {
  return `${process.rank} on ${device.label}`;
}

/** Bars as long as the GPU is large; a tick marks the most that the process ever held there. */
function bars(axis) {
  const largest = Math.max(1, ...columns.map(({ device, capacity }) => Math.max(capacity ?? 0, device.peak_bytes)));
  const order = [...totals(axis).keys()].sort((a, b) => rowOrder(axis, a, b, totals(axis)));
  const share = (n) => `${(100 * n) / largest}%`;
  const bar = (column) => {
    const { process, device, capacity } = column;
    const sums = new Map(order.map((label) => [label, 0]));
    for (const cell of device.cells) {
      const label = axis === "phase" ? root(cell.phase) : cell[axis];
      sums.set(label, sums.get(label) + cell.live_bytes);
    }
    const parts = [...sums].filter(([, held]) => held > 0);
    const piece = ([label, held]) => {
      const part = el("i", { "--c": color(label), title: `${label}: ${human(held)}` });
      part.style.width = share(held);
      return part;
    };
    const peak = el("u", { title: `peak: ${human(device.peak_bytes)}` });
    peak.style.left = `min(${share(device.peak_bytes)}, 100% - 2px)`;
    const said = parts.map(([label, held]) => `${label} ${human(held)}`).join(", ");
    return el(
      "li",
      {},
      el("span", { class: "who" }, name(process.rank), el("small", {}, device.label)),
      el("span", { class: "bar", role: "img", "aria-label": `${columnName(column)}: ${said}; peak ${human(device.peak_bytes)}` }, parts.map(piece), peak),
      el("span", { class: "much" }, bytes(device.live_bytes), capacity !== null && el("small", {}, ` of ${human(capacity)}`)),
    );
  };
  return el("div", {}, el("ul", { class: "bars" }, columns.map(bar)), legend(axis, order));
}

/** Layers with their totals. */
function legend(axis, order) {
  const sums = totals(axis);
  const all = report.total.live_bytes;
  const entry = (label) =>
    el("li", {}, swatch(label), label, " ", el("small", {}, `${human(sums.get(label))} · ${percent(sums.get(label), all)}`));
  return el("ul", { class: "legend", "aria-label": "Colours" }, order.filter((label) => sums.get(label) > 0).map(entry));
}

/** Phases stand in the order of the server's life, other labels by size. */
function rowOrder(axis, a, b, sums) {
  const place = (phase) => (page.phases.indexOf(root(phase)) + 1 || 99);
  return (axis === "phase" && place(a) - place(b)) || (axis === "phase" ? a.localeCompare(b) : sums.get(b) - sums.get(a));
}

/** The table. Rows of phases open to show their sub-phases. */
function heat(axis, value) {
  const sums = new Map(), rows = new Map();
  columns.forEach(({ device }, n) => {
    for (const cell of device.cells) {
      const label = cell[axis];
      if (!rows.has(label)) rows.set(label, columns.map(() => 0));
      rows.get(label)[n] += cell[value];
    }
  });
  for (const [label, row] of rows) sums.set(label, row.reduce((a, b) => a + b, 0));
  for (const [label, sum] of sums) if (sum === 0) (rows.delete(label), sums.delete(label));
  const labels = [...rows.keys()].sort((a, b) => rowOrder(axis, a, b, sums));
  // Sub-phases stand below the sum of their phase.
  const groups = new Map();
  for (const label of labels) {
    const top = axis === "phase" ? root(label) : label;
    groups.set(top, [...(groups.get(top) ?? []), label]);
  }
  const add = (list) => list.reduce((sum, row) => sum.map((n, i) => n + row[i]), columns.map(() => 0));
  const tops = new Map([...groups].map(([top, parts]) => [top, add(parts.map((part) => rows.get(part)))]));
  const most = Math.max(1, ...[...tops.values()].flat());
  const what = value === "live_bytes" ? `held ${moment}` : "ever allocated";
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": `Bytes by ${axis} and rank` },
    el(
      "table",
      { class: columns.length > 6 ? "heat wide" : "heat", id: "heat" },
      el("caption", {}, `Bytes ${what}, by ${axis} and rank. The darker, the more.`),
      heatHead(axis),
      el("tbody", {}, [...groups].flatMap(([top, parts]) => heatRows(top, parts, tops, rows, most))),
      heatFoot(value),
    ),
  );
}

function heatHead(axis) {
  const title = axis[0].toUpperCase() + axis.slice(1);
  const head = ({ process, device }) =>
    el("th", { scope: "col", class: "n" }, name(process.rank), device.label, process.role !== "target" && process.role !== "other" && ` · ${process.role}`);
  return el("thead", {}, el("tr", {}, el("th", { scope: "col" }, title), columns.map(head), columns.length > 1 && el("th", { scope: "col", class: "n" }, "All")));
}

function heatRows(top, parts, tops, rows, most) {
  const cells = (row) => {
    const cell = (n) => {
      const shade = n === 0 ? 0 : 0.05 + 0.5 * Math.sqrt(n / most);
      return el("td", { class: n === 0 ? "n zero" : "n", "--h": shade.toFixed(3) }, n === 0 ? "–" : bytes(n));
    };
    const sum = row.reduce((a, b) => a + b, 0);
    return [row.map(cell), columns.length > 1 && el("td", { class: "n sum", "--h": 0 }, bytes(sum))];
  };
  const isOne = parts.length === 1 && parts[0] === top;
  if (isOne) return [el("tr", { "data-row": top }, el("th", { scope: "row" }, el("i", { class: "twist" }), swatch(top), name(top)), cells(tops.get(top)))];
  const below = parts.map((part) =>
    el("tr", { class: "part", hidden: true, "data-row": part }, el("th", { scope: "row" }, name(part)), cells(rows.get(part))),
  );
  const button = el("button", { class: "plain", "aria-expanded": "false", "aria-label": `${top}: sub-phases` }, "▸");
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", open);
    button.firstChild.data = open ? "▾" : "▸";
    below.forEach((row) => (row.hidden = !open));
  });
  const head = el("th", { scope: "row" }, el("span", { class: "twist" }, button), swatch(top), name(top));
  return [el("tr", { "data-row": top }, head, cells(tops.get(top))), ...below];
}

function heatFoot(value) {
  const figures = columns.map(({ device }) => device[value]);
  const all = value === "live_bytes" ? report.total.live_bytes : report.total.allocated_bytes;
  const cell = (n) => el("td", { class: "n", "--h": 0 }, bytes(n));
  const peak = (n) => el("td", { class: "n zero", "--h": 0 }, bytes(n));
  return el(
    "tfoot",
    {},
    el("tr", { "data-row": "total" }, el("th", { scope: "row" }, "All"), figures.map(cell), columns.length > 1 && cell(all)),
    el("tr", { "data-row": "peak" }, el("th", { scope: "row" }, "Peak"), columns.map(({ device }) => peak(device.peak_bytes)), columns.length > 1 && peak(report.total.peak_bytes)),
  );
}
