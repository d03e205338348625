// What changed against another run, its verdict, and how the KV cache was sized.

const diff = page.diff ?? null;

/** What is the matter: a comparison's conclusion, else the run's own. */
function verdict() {
  const { summary, suspects, ruled_out } = diff?.verdict ?? report.verdict;
  const told = (finding) => summary.includes(finding.text);
  const marks = { cause: "Cause", failure: "Failed" };
  const more = [
    ...suspects.filter((suspect) => !told(suspect)).map((suspect) => [marks[suspect.weight] ?? "Also", suspect.text]),
    ...ruled_out.filter((not) => !told(not)).map((not) => ["Ruled out", not.text]),
  ];
  if (!summary && more.length === 0) return null;
  const entry = ([mark, text]) => el("li", {}, el("b", {}, `${mark}: `), name(text));
  return el(
    "div",
    { class: "verdict", id: "verdict" },
    el("h3", {}, "Verdict"),
    summary && `${summary}.`.split(/(?<=\.) (?=[A-Z])/).map((text, n) => el("p", { class: n === 0 ? "first" : null }, name(text))),
    more.length > 0 && el("ul", {}, more.slice(0, 12).map(entry)),
  );
}

function versus() {
  if (!diff) return;
  const heading = document.getElementById("versus-h");
  heading.replaceChildren("What changed: ", name(diff.base.name), " → ", name(diff.other.name));
  show("versus", runs(), settings(), changes(), stackChanges());
  // The comparison is what the reader came for.
  document.getElementById("summary").after(document.getElementById("versus"));
}

/** How the other run ended, where both are compared, what it comes to. */
function runs() {
  const { phase, why } = diff.compared;
  const place = phase ? `at the end of ${phase}, ${why ? "the last phase that both went through" : "as asked"}` : { end: "as they ended", peak: "at their peaks", oom: "when memory ran out" }[diff.compared.at] ?? `at ${diff.compared.at}`;
  const base = diff.base;
  const doubts = [
    base.lost_events > 0 && `${counted(base.lost_events, "event")} of ${base.name} were lost; its figures may be off by them.`,
    base.pre_attach_bytes > 0 && `${human(base.pre_attach_bytes)} of ${base.name} was held before tracing began: without stack, kind or phase.`,
    ...base.notices.map((notice) => `${base.name}: ${notice}`),
  ].filter(Boolean);
  const { total_base_bytes: before, total_other_bytes: now, total_delta_bytes: delta } = diff;
  return [
    el("p", {}, name(diff.other.name), delta === 0 ? " holds as much as " : delta > 0 ? " holds more than " : " holds less than ", name(base.name), ": ", el("b", { id: "delta" }, change(delta)), " (", bytes(before), " → ", bytes(now), `), both taken ${place}.`),
    why && el("p", { class: "note" }, name(named(why)), "."),
    el("p", { class: "note" }, name(base.name), ": ", name(base.outcome.detail), "."),
    doubts.length > 0 && el("ul", { class: "note" }, doubts.map((text) => el("li", {}, name(text)))),
  ];
}

/** A sentence of the comparison with the files' names in the place of BASE and OTHER. */
function named(text) {
  return text.replace(/\b(BASE|OTHER)\b/g, (which) => (which === "BASE" ? diff.base.name : diff.other.name));
}

/** `TP0`, `TP0, TP1`, `TP0 … TP7 (8 ranks)`. */
function ranksNamed(ranks) {
  return ranks.length > 2 ? `${ranks[0]} … ${ranks.at(-1)} (${ranks.length} ranks)` : ranks.join(", ");
}

/** Settings that differ; those that differ between any two runs are folded away. */
function settings() {
  const value = (text) => (text === null ? el("span", { class: "note" }, "not set") : text === "" ? "set" : name(text, { class: "name code" }));
  const rows = (list) => list.map((setting) => [name(setting.key, { class: "name code" }), value(setting.base), value(setting.other), setting.source.replace("_", " ")]);
  const heads = () => ["Setting", name(diff.base.name), name(diff.other.name), "From"];
  const [noise, telling] = [true, false].map((noisy) => diff.configuration.filter((setting) => setting.noise === noisy));
  return [
    el("h3", {}, "Configuration"),
    telling.length ? table("Settings that differ", heads(), rows(telling), { class: "stacked settings" }) : el("p", {}, "No setting differs that could be a cause."),
    noise.length > 0 && el("details", {}, el("summary", {}, `Settings that differ between any two runs (${noise.length})`), table("Ports, seeds, paths", heads(), rows(noise), { class: "stacked" })),
  ];
}

/** Signed bytes by phase and rank, as a table coloured by size. */
function changes() {
  const ranks = diff.ranks.filter((rank) => rank.base_bytes || rank.other_bytes);
  const phases = new Map();
  ranks.forEach((rank, n) =>
    rank.phases.forEach((entry) => {
      if (!phases.has(entry.phase)) phases.set(entry.phase, ranks.map(() => ({ base_bytes: 0, other_bytes: 0, delta_bytes: 0 })));
      phases.get(entry.phase)[n] = entry;
    }),
  );
  const rows = [...phases].filter(([, row]) => row.some((entry) => entry.delta_bytes !== 0));
  if (rows.length === 0) return [el("h3", {}, "Bytes"), el("p", {}, "Every rank holds as much in every phase.")];
  rows.sort((a, b) => rowOrder("phase", a[0], b[0]));
  const most = Math.max(...rows.flatMap(([, row]) => row.map((entry) => Math.abs(entry.delta_bytes))));
  const cell = (entry) => {
    const delta = entry.delta_bytes, shade = 0.06 + 0.5 * Math.sqrt(Math.abs(delta) / most);
    const kind = delta > 0 ? "n more" : delta < 0 ? "n less" : "n zero";
    const figure = delta === 0 ? "=" : change(delta);
    return el("td", { class: kind, "--h": shade.toFixed(3), title: `${human(entry.base_bytes)} → ${human(entry.other_bytes)}` }, figure);
  };
  const sum = (list) => list.reduce((all, entry) => all + entry.delta_bytes, 0);
  const plain = (n) => el("td", { class: "n sum" }, change(n));
  const many = ranks.length > 1;
  const head = (rank) => el("th", { scope: "col", class: "n" }, name(rank.rank), rank.base_pid === null ? "new" : rank.other_pid === null ? "gone" : "");
  return [
    el("h3", {}, "Bytes"),
    el(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "Change of bytes by phase and rank" },
      el(
        "table",
        { class: ranks.length > 6 ? "heat wide" : "heat", id: "changes" },
        el("caption", {}, `${diff.other.name} less ${diff.base.name}, by phase and rank; phases that hold the same everywhere are left out.`),
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Phase"), ranks.map(head), many && el("th", { scope: "col", class: "n" }, "All"))),
        el("tbody", {}, rows.map(([phase, row]) => el("tr", { "data-row": phase }, el("th", { scope: "row" }, swatch(phase), name(phase)), row.map(cell), many && plain(sum(row))))),
        el("tfoot", {}, el("tr", { "data-row": "total" }, el("th", { scope: "row" }, "All"), ranks.map((rank) => plain(rank.delta_bytes)), many && plain(diff.total_delta_bytes))),
      ),
    ),
    sideBytes(ranks),
  ];
}

/** Imported and host memory, which no sum counts. */
function sideBytes(ranks) {
  const changed = ranks.filter((rank) => rank.imported.delta_bytes !== 0 || rank.host.delta_bytes !== 0);
  if (changed.length === 0) return null;
  const n = (text) => ({ text, n: 1 });
  const alike = new Map();
  for (const rank of changed) {
    const key = `${rank.imported.delta_bytes} ${rank.host.delta_bytes}`;
    alike.set(key, [...(alike.get(key) ?? []), rank]);
  }
  const rows = [...alike.values()].map((ranks) => [name(ranksNamed(ranks.map((rank) => rank.rank))), change(ranks[0].imported.delta_bytes), change(ranks[0].host.delta_bytes)]);
  return table("Apart from these sums: memory of others that is mapped, and pinned host memory, each rank", ["Rank", n("Imported"), n("Host")], rows);
}

function stackChanges() {
  if (diff.stacks.length === 0) return null;
  const rows = diff.stacks.slice(0, 40).map((stack) => [
    frameList(stack.frames.slice(0, 5)), el("b", {}, stack.change), change(stack.delta_bytes), [bytes(stack.base_bytes), " → ", bytes(stack.other_bytes)],
    [swatch(stack.phase), name(stack.phase)], name(stack.owner), stack.ranks.length > 3 ? counted(stack.ranks.length, "rank") : name(stack.ranks.join(", ")),
  ]);
  const heads = ["Stack, innermost first", "Change", { text: "By", n: 1 }, { text: "From → to", n: 1 }, "Phase", "Owner", "Where"];
  const more = diff.stacks.length - rows.length + (diff.left_out ?? 0);
  return [
    el("h3", {}, "Stacks"),
    table("Call stacks whose bytes changed, the largest change first", heads, rows, { class: "stacked", id: "stack-changes" }),
    more > 0 && el("p", { class: "note" }, `${counted(more, "stack")} more in `, el("code", {}, "vramtrace diff --format json"), "."),
  ];
}

/** How the server sized its KV cache. */
function budget() {
  const list = report.kv_budget;
  if (!list.length) return;
  const groups = new Map();
  for (const entry of list) groups.set(entry.sentence, [...(groups.get(entry.sentence) ?? []), entry.rank]);
  const sentences = [...groups].map(([text, ranks]) => el("p", { class: list.some((entry) => entry.fits === false) ? "banner bad" : null }, el("b", {}, name(ranksNamed(ranks)), ": "), name(text)));
  const n = (text) => ({ text, n: 1 });
  const isVllm = list.every((entry) => entry.server === "vllm");
  const heads = ["Rank", ...(isVllm ? ["Requested", "Not KV", "Fraction", "Free at start"] : ["A: free after the weights", "P: free before", "Fraction", "Reserve P × (1 − f)"]).map(n), n("Rest"), n("Pool"), n("Tokens")];
  const fraction = (value) => (value === null || value === undefined ? "unknown" : String(+value.toFixed(4)));
  const rows = list.map((entry) => [
    name(entry.rank),
    ...(isVllm ? [bytes(entry.requested_bytes), bytes(entry.non_kv_bytes), fraction(entry.gpu_memory_utilization), bytes(entry.available_bytes)] : [bytes(entry.available_bytes), bytes(entry.pre_load_bytes), fraction(entry.mem_fraction_static), bytes(entry.reserve_bytes)]),
    entry.rest_bytes === null ? "unknown" : el("b", { class: entry.rest_bytes < 0 ? "bad-text" : null }, entry.rest_bytes < 0 ? change(entry.rest_bytes) : bytes(entry.rest_bytes)),
    bytes(entry.pool_bytes),
    entry.tokens === null ? "unknown" : entry.tokens.toLocaleString("en"),
  ]);
  const evidence = list.flatMap((entry) => entry.evidence.map((figure) => [name(entry.rank), figure.figure.replace(/_/g, " "), bytes(figure.bytes), name(figure.text)]));
  const missing = [...new Set(list.flatMap((entry) => entry.missing))];
  show(
    "budget",
    sentences,
    table(list[0].formula, heads, rows, { id: "budget-table" }),
    missing.length > 0 && el("p", { class: "note" }, `Not known: ${missing.join("; ")}.`),
    evidence.length > 0 && el("details", {}, el("summary", {}, "Where each figure comes from"), table("Evidence", ["Rank", "Figure", n("Bytes"), "Found"], evidence)),
  );
  if (list.some((entry) => entry.fits === false)) document.getElementById("where").before(document.getElementById("budget"));
}
