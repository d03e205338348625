// First screen: how the run ended, where the memory is in one sentence, what to know before believing it.

function overview() {
  document.getElementById("name").append(page.name);
  document.getElementById("outcome").append(...banners());
  show("summary", verdict(), lede(), facts());
}

const OUTCOMES = {
  oom: ["bad", "Out of memory"], truncated: ["bad", "Truncated trace"], killed: ["bad", "Killed"],
  exited: ["good", "Exited"], running: ["good", "Running"],
};

/** Banners of the outcome and of what makes the figures less than certain. */
function banners() {
  const { kind, detail } = report.outcome;
  const [level, title] = OUTCOMES[kind] ?? ["warn", kind];
  const banner = (level, title, text) => el("p", { class: `banner ${level}` }, el("b", {}, `${title}:`), name(text));
  const list = [banner(level, title, detail)];
  if (report.lost_events > 0) {
    list.push(banner("bad", "Lost events", `${counted(report.lost_events, "event")} that could carry bytes; figures may be off by them.`));
  }
  if (report.ledger !== "ioctl") {
    list.push(banner("warn", "Driver API ledger", "the driver's requests could not be read: memory that it takes for itself is missing."));
  }
  return list;
}

/** One sentence: who holds how much, and what for. */
function lede() {
  const total = report.total.live_bytes;
  const holders = columns.filter((column) => column.device.live_bytes > 0);
  if (total === 0) return el("p", { class: "lede" }, `No GPU memory was held ${moment}.`);
  const by = page.timeline.by;
  const shares = [...totals(by).entries()].sort((a, b) => b[1] - a[1]);
  const named = shares.slice(0, 4).filter(([, held]) => held > 0);
  const rest = total - named.reduce((sum, [, held]) => sum + held, 0);
  const gpus = new Set(holders.map(({ device }) => device.label)).size;
  const many = new Set(holders.map(({ process }) => process)).size;
  const who = many === 1 ? [name(holders[0].process.rank), " held "] : [`${many} processes held `];
  const part = ([label, held], n) => [n ? ", " : "", el("span", { class: "part" }, swatch(label), el("b", {}, label), ` ${human(held)} (${percent(held, total)})`)];
  const when = moment[0].toUpperCase() + moment.slice(1);
  return el(
    "p",
    { class: "lede" },
    `${when}, `,
    who,
    el("b", {}, bytes(total)),
    ` on ${gpus === 1 ? holders[0].device.label : counted(gpus, "GPU")}: `,
    named.map(part),
    rest > 0 && `, the rest ${human(rest)}`,
    ".",
  );
}

/** Live bytes of all columns by label of an axis of the devices' cells; sub-phases count for their phase. */
function totals(axis) {
  const sums = new Map();
  for (const { device } of columns) {
    for (const cell of device.cells) {
      const label = axis === "phase" ? root(cell.phase) : cell[axis];
      sums.set(label, (sums.get(label) ?? 0) + cell.live_bytes);
    }
  }
  return sums;
}

/** The figures on which all else hangs. */
function facts() {
  const fact = (term, value, note, level) =>
    el("div", {}, el("dt", {}, term), el("dd", { class: level }, value, note && el("small", {}, note)));
  const quiet = columns.reduce((sum, { device }) => sum + device.compared.quiet_samples, 0);
  const explained = report.explained_percent;
  const failures = report.failures.reduce((sum, failure) => sum + failure.count, 0);
  const oom = report.failures.filter((failure) => failure.out_of_memory).reduce((sum, failure) => sum + failure.count, 0);
  const lost = Object.keys(report.losses).length ? "calls or stacks are missing, see below" : "every event was seen";
  return el(
    "dl",
    { class: "facts" },
    fact(`Held ${moment}`, bytes(report.total.live_bytes), report.one_moment ? counted(report.total.live_count, "allocation") : "each process at a moment of its own"),
    fact("Most held at once", bytes(report.total.peak_bytes), "by all traced processes"),
    fact(
      "Explained of NVML's bytes",
      explained === null ? "unknown" : `${(Math.floor(explained * 10) / 10).toFixed(1)} %`,
      explained === null ? "no quiet sample to compare with" : `in ${counted(quiet, "quiet sample")}`,
      explained !== null && explained < 99 ? "warn-text" : null,
    ),
    fact("Lost events", report.lost_events === 0 ? "none" : report.lost_events.toLocaleString("en"), lost, report.lost_events ? "bad-text" : null),
    fact("Failed calls", failures === 0 ? "none" : failures.toLocaleString("en"), oom ? `${oom} for want of memory` : "for any reason", oom ? "bad-text" : null),
  );
}
