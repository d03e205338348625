// The page's data, and figures as people read them. What is shown is what `report --format json` says; nothing is summed
// here that the report does not sum.

const page = JSON.parse(document.getElementById("data").textContent);
const report = page.report;

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Bytes in binary units, rounded as in the text report: `518.0 MiB`, `21.71 GiB`. */
function human(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  for (let n = 0; n < UNITS.length; n++) {
    const decimals = n < 2 ? 1 : 2;
    const scale = 10 ** decimals, size = 2 ** (10 * (n + 1));
    const scaled = Math.floor((bytes * scale + size / 2) / size);
    // After rounding, so that 1023.96 MiB reads `1.00 GiB`.
    if (scaled < 1024 * scale || n === UNITS.length - 1) return `${(scaled / scale).toFixed(decimals)} ${UNITS[n]}`;
  }
}

/** A difference with its sign. */
function signed(bytes) {
  return bytes === 0 ? "0 B" : (bytes < 0 ? "−" : "+") + human(Math.abs(bytes));
}

/** `part` of `whole` in percent; one digit below ten. */
function percent(part, whole) {
  if (!whole) return "–";
  const share = (100 * part) / whole;
  return share > 0 && share < 0.1 ? "<0.1 %" : `${share >= 9.95 ? Math.round(share) : share.toFixed(1)} %`;
}

/** Nanoseconds as a duration: `850 ms`, `12.345 s`, `3 min 05 s`. */
function duration(ns) {
  const ms = ns / 1e6, s = ms / 1e3, two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (ms < 1) return `${+(ns / 1e3).toPrecision(3)} µs`;
  if (s < 1) return `${+ms.toPrecision(3)} ms`;
  if (s < 120) return `${s.toFixed(s < 10 ? 3 : 2)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${two((s / 60) % 60)} min`;
}

/** `1 call`, `2 calls`. */
function counted(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

/** The phase that a sub-phase is part of. */
function root(phase) {
  const dot = phase.indexOf(".");
  return dot < 0 ? phase : phase.slice(0, dot);
}

// Kinds and the owners that are met most take the colours of the phases in which they usually come.
const OTHER_SLOTS = {
  context: 1, module: 7, local_memory: 2, channel: 0, cuda_malloc: 4, vmm: 6, pool: 9, graph_exec: 10, ipc_import: 3, host: 12,
  pre_attach: 8, torch: 4, torch_graph_pool: 9, nccl: 2, custom_allreduce: 3, driver: 1, cublas: 7, nvshmem: 11, tms: 5,
};

/** Colour of a phase, kind or owner, the same on every page. */
function color(name) {
  const phase = page.phases.indexOf(root(name));
  const slot = phase >= 0 ? phase : OTHER_SLOTS[name] ?? 13;
  return `var(--s${slot})`;
}

/** Sums up an array of differences. */
function running(differences) {
  let value = 0;
  return differences.map((difference) => (value += difference));
}

/** What each process holds on each GPU: the columns of the tables, in the order of the report. */
const columns = report.processes.flatMap((process) =>
  process.devices.map((device) => {
    const gpu = report.gpus.find((gpu) => gpu.label === device.label && gpu.uuid === device.uuid);
    return { process, device, capacity: gpu?.total_bytes ?? null };
  }),
);

const moment = { end: "at the end", peak: "at each process's peak", oom: "when memory ran out" }[report.at] ??
  `${report.at} after tracing began`;
