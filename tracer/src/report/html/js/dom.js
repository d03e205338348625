// Making elements. Names from the trace become text nodes, never markup.

/**
 * An element. Attributes beginning with `--` are custom properties, those beginning with `on` are listeners; children are
 * nodes or text, in arrays if you like; null and false are left out.
 */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Bytes for people, exact in `value` and in the tip. */
function bytes(n) {
  return n === null || n === undefined ? "unknown" : el("data", { value: n, title: `${n.toLocaleString("en")} bytes` }, human(n));
}

/** A difference for people, exact in `value` and in the tip. */
function change(n) {
  return el("data", { value: n, title: `${n.toLocaleString("en")} bytes` }, signed(n));
}

/** A name from the trace, whole in the tip. */
function name(text, attributes = {}) {
  return el("span", { class: "name", ...attributes }, text);
}

/** The part of section `id` that scripts fill. */
function body(id) {
  return document.querySelector(`#${id} > .body`);
}

/** Shows section `id` with `children`. */
function show(id, ...children) {
  document.getElementById(id).hidden = false;
  body(id).append(...children.flat(9).filter(Boolean));
}

/**
 * A table. `heads` are texts, or `{text, n}` for a column of figures; rows are arrays of cells, the first of which names the row.
 */
function table(caption, heads, rows, attributes = {}) {
  const isFigure = heads.map((head) => Boolean(head.n));
  const cell = (content, n) =>
    n === 0 ? el("th", { scope: "row" }, content) : el("td", { class: isFigure[n] ? "n" : null }, content);
  return el(
    "div",
    { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
    el(
      "table",
      attributes,
      el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col", class: head.n ? "n" : null }, head.text ?? head)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))),
    ),
  );
}

/** A choice; `change` is called with the value chosen. */
function choice(label, options, change) {
  const select = el("select", { onchange: () => change(select.value) }, options.map(([value, text]) => el("option", { value }, text)));
  return el("label", {}, label, select);
}

/** Frames, innermost first, one a line. */
function frameList(frames) {
  if (!frames?.length) return el("span", { class: "note" }, "no stack recorded");
  return el("ol", { class: "frames" }, frames.map((frame) => el("li", { class: "name" }, frame)));
}

/** Swatch of a phase or kind. */
function swatch(of) {
  return el("i", { class: "swatch", "--c": color(of), "aria-hidden": "true" });
}

/** Items of the report's list `list` that the page leaves out, said. */
function leftOut(list, noun) {
  const n = report.left_out?.[list] ?? 0;
  return n > 0 && el("p", { class: "note" }, `${counted(n, noun)} more in `, el("code", {}, "vramtrace report --format json"), ".");
}
