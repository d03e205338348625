// The flame graph, hanging from its root: widths are bytes. Boxes are tree items that arrow keys walk.

const LEVEL = 20;
/** Boxes narrower than this many pixels are not drawn; zooming brings them out. */
const NARROW = 2;

class FlameGraph {
  constructor() {
    this.value = "live";
    this.order = timeline.by === "phase" ? "phase" : "rank";
    this.all = false;
    this.query = "";
    this.space = el("div", { class: "space", role: "tree", "aria-label": "Call stacks by bytes" });
    this.view = el("div", { id: "flames" }, this.space);
    this.readout = el("div", { class: "readout", id: "flame-readout", role: "status" });
    this.found = el("output", { id: "found", class: "note" });
    this.below = el("div", { id: "flame-table" });
    this.space.addEventListener("keydown", (event) => this.key(event));
    this.space.addEventListener("click", (event) => this.zoom(this.boxOf(event)));
    for (const kind of ["pointerover", "focusin"]) this.space.addEventListener(kind, (event) => this.tell(this.boxOf(event)));
  }

  /** Everything of the section. */
  parts() {
    const changes = diff ? [["more", `more than in ${diff.base.name}`], ["less", `less than in ${diff.base.name}`]] : [];
    const values = [["live", `held ${moment}`], ["peak", "held at each process's peak"], ["allocated", "ever allocated"], ...changes];
    const orders = [["phase,rank", "phase, then rank"], ["rank,phase", "rank, then phase"], ["rank", "rank"], ["phase", "phase"], ["owner", "owner"], ["none", "nothing"]];
    orders.sort((a, b) => (b[0] === this.order) - (a[0] === this.order));
    this.search = el("input", { type: "search", id: "search", placeholder: "function, file or library", autocomplete: "off", spellcheck: "false", oninput: () => this.seek() });
    const all = el("input", { type: "checkbox", onchange: () => ((this.all = all.checked), this.rebuild()) });
    this.reset = el("button", { type: "button", id: "unzoom", onclick: () => this.zoom(this.top) }, "Whole graph");
    return [
      el("p", { class: "note" }, "Each box is a function; its width is the memory that came through it. Click or press Enter to zoom, arrow keys move, Escape zooms out, / searches."),
      el(
        "div",
        { class: "controls" },
        choice("Bytes", values, (value) => ((this.value = value), this.rebuild())),
        choice("First by", orders, (order) => ((this.order = order), this.rebuild())),
        el("label", {}, "Search", this.search),
        el("label", {}, all, "interpreter and driver frames"),
        this.reset,
        this.found,
      ),
      this.view,
      looks(),
      this.readout,
      this.below,
    ];
  }

  /** Makes the tree anew and shows all of it. */
  rebuild() {
    // What came and what went are stacks of both runs, told apart by functions alone.
    const changes = this.value === "more" || this.value === "less";
    this.top = buildTree(changes ? diff.flame : page.flame, this.order, this.all || changes);
    this.index = VALUES[this.value] - 4;
    this.seek(false);
    this.zoom(this.top, false);
  }

  boxOf(event) {
    return this.boxes.get(event.target.closest?.(".frame"));
  }

  /** Shows `box` in full width, with what leads to it above. */
  zoom(box, focus = true) {
    if (!box) return;
    this.at = box;
    this.draw();
    this.reset.disabled = box === this.top;
    this.tell(box);
    this.below.replaceChildren(this.childTable(box));
    if (focus) this.focus(box);
  }

  draw() {
    this.boxes = new Map();
    this.elements = new Map();
    const width = Math.max(300, this.view.clientWidth), list = [];
    for (let box = this.at.parent; box; box = box.parent) list.push(this.element(box, 0, width, 1, 1, "above"));
    list.reverse();
    let deepest = this.at.level;
    const lay = (box, left, scale, place, siblings) => {
      const wide = box.sums[this.index] * scale;
      if (wide < NARROW) return;
      list.push(this.element(box, left, wide, place, siblings));
      deepest = Math.max(deepest, box.level);
      const children = sorted(box, this.value);
      children.forEach((child, n) => {
        lay(child, left, scale, n + 1, children.length);
        left += child.sums[this.index] * scale;
      });
    };
    if (this.at.sums[this.index] > 0) lay(this.at, 0, width / this.at.sums[this.index], 1, 1);
    else list.push(el("p", { class: "note" }, "No bytes here: choose another kind of bytes."));
    this.space.replaceChildren(...list);
    this.space.style.height = `${(deepest + 1) * LEVEL + 2}px`;
    this.elements.get(this.at)?.setAttribute("tabindex", 0);
  }

  element(box, left, width, place, siblings, extra = "") {
    const bytes = box.sums[this.index];
    const hit = this.query && this.matches(box);
    const classes = ["frame", box.look, extra, hit ? "match" : this.query ? "dim" : ""].filter(Boolean).join(" ");
    // A box too narrow for a letter holds none: its name is in its label.
    const text = width > 28 ? clip(box.text, Math.ceil(width / 5)) : "";
    const element = el(
      "div",
      {
        class: classes, role: "treeitem", tabindex: -1, "aria-level": box.level + 1, "aria-setsize": siblings, "aria-posinset": place,
        "aria-label": `${clip(box.text, 300)}, ${human(bytes)}, ${percent(bytes, this.top.sums[this.index])}`,
        "data-bytes": bytes,
        "--f": box.shade ?? this.colour(box),
      },
      text,
    );
    Object.assign(element.style, { left: `${left}px`, width: `${Math.max(width, 1)}px`, top: `${box.level * LEVEL}px` });
    if (box.shade) element.style.color = "#fff", (element.style.textShadow = "0 0 2px rgb(0 0 0 / .6)");
    if (box.look === "group" && !box.shade) element.style.color = "var(--ink)";
    this.boxes.set(element, box);
    this.elements.set(box, element);
    return element;
  }

  colour(box) {
    if (box.look === "group") return "var(--hover)";
    return this.value === "more" || this.value === "less" ? `rgb(var(--${this.value}) / .3)` : `var(--${box.look})`;
  }

  /** Says what a box is. */
  tell(box) {
    if (!box) return;
    const bytes_ = box.sums[this.index];
    const share = this.at !== this.top && box !== this.at ? `, ${percent(bytes_, this.at.sums[this.index])} of the box in view` : "";
    this.readout.replaceChildren(
      el("div", {}, el("b", {}, bytes(bytes_)), ` · ${percent(bytes_, this.top.sums[this.index])} of all${share}`, box.place && [" · ", name(box.place, { class: "name code" })]),
      el("div", { class: "name code cut" }, box.text),
    );
  }

  /** Moves the focus, and with it the one box that Tab reaches. */
  focus(box) {
    const element = this.elements.get(box);
    if (!element) return;
    this.space.querySelector('[tabindex="0"]')?.setAttribute("tabindex", -1);
    element.setAttribute("tabindex", 0);
    element.focus({ preventScroll: false });
  }

  key(event) {
    const box = this.boxOf(event);
    if (!box) return;
    const drawn = (list) => list.filter((item) => this.elements.has(item));
    const siblings = () => (box.parent ? drawn(sorted(box.parent, this.value)) : [box]);
    const next = (step) => siblings()[siblings().indexOf(box) + step];
    const acts = {
      ArrowDown: () => this.focus(drawn(sorted(box, this.value))[0]),
      ArrowUp: () => this.focus(box.parent),
      ArrowRight: () => this.focus(next(1)),
      ArrowLeft: () => this.focus(next(-1)),
      Home: () => this.focus(this.top),
      End: () => this.focus(siblings().at(-1)),
      Enter: () => this.zoom(box),
      " ": () => this.zoom(box),
      Escape: () => this.zoom(this.at.parent ?? this.top),
      Backspace: () => this.zoom(this.at.parent ?? this.top),
    };
    const act = acts[event.key];
    if (act && !event.ctrlKey && !event.metaKey && !event.altKey) event.preventDefault(), act();
  }

  matches(box) {
    return box.text.toLowerCase().includes(this.query) || box.place.toLowerCase().includes(this.query);
  }

  /** Marks what the search matches and says how much memory came through it. */
  seek(draw = true) {
    this.query = this.search.value.trim().toLowerCase();
    const all = this.top.sums[this.index];
    const held = this.query ? matched(this.top, this.index, (box) => box !== this.top && this.matches(box)) : 0;
    this.found.replaceChildren(...(this.query ? [bytes(held), ` (${percent(held, all)}) through matches`] : []));
    if (draw) this.draw();
  }

  /** What lies directly in a box, as a table. */
  childTable(box) {
    const children = sorted(box, this.value), shown = children.slice(0, 30);
    if (!children.length) return el("p", { class: "note" }, "Nothing lies below this box.");
    const rows = shown.map((child) => [
      el("button", { class: "plain", type: "button", onclick: () => this.zoom(child, false) }, name(child.text)),
      name(child.place, { class: "name code" }),
      bytes(child.sums[this.index]),
      percent(child.sums[this.index], box.sums[this.index]),
    ]);
    const heads = ["Function", "Where", { text: "Bytes", n: 1 }, { text: "Share", n: 1 }];
    const caption = `Directly below ${clip(box.text, 120)}${children.length > 30 ? `: the 30 largest of ${children.length}` : ""}`;
    return el("details", { open: this.tableOpen, ontoggle: (event) => (this.tableOpen = event.target.open) }, el("summary", {}, "Flame graph as a table"), table(caption, heads, rows));
  }
}

/** What the colours of boxes mean. */
function looks() {
  const look = (kind, text) => el("li", {}, el("i", { class: "swatch", "--c": `var(--${kind})`, "aria-hidden": "true" }), text);
  return el(
    "ul", { class: "legend", "aria-label": "Colours of boxes" },
    look("python", "Python function"), look("native", "native function"), look("call", "API call and kind of memory"), look("match", "match of the search"),
  );
}

function flame() {
  if (page.flame.rows.length === 0) {
    show("flame", el("p", {}, "No GPU memory was allocated."));
    return;
  }
  const graph = new FlameGraph();
  show("flame", graph.parts());
  if (page.flame.merged) show("flame", el("p", { class: "note" }, `${counted(page.flame.merged, "smaller stack")} are told together, for there are too many to draw.`));
  graph.rebuild();
  let width = graph.view.clientWidth;
  new ResizeObserver(() => graph.view.clientWidth !== width && ((width = graph.view.clientWidth), graph.draw())).observe(graph.view);
  document.addEventListener("keydown", (event) => {
    const typing = /^(input|select|textarea)$/i.test(event.target.tagName ?? "");
    if (event.key === "/" && !typing) event.preventDefault(), graph.search.focus();
  });
  return graph;
}
