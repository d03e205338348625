// Sections that are tables: failed calls, biggest stacks, NVML, losses, configuration.

/** Failed calls; for want of memory, who held the GPU. */
function failures() {
  if (report.failures.length === 0 && report.errors.length === 0) return;
  const oom = report.failures.filter((failure) => failure.out_of_memory).reverse();
  const others = report.failures.filter((failure) => !failure.out_of_memory);
  if (oom.length) document.getElementById("failures-h").textContent = "Out of memory";
  show("failures", oom.slice(0, 5).map(outOfMemory), errors(), oom.length > 5 && failureTable("Earlier calls that found no memory", oom.slice(5)), others.length > 0 && failureTable("Calls that failed for other reasons", others), leftOut("failures", "failure"));
  // What a server died of stands before all else.
  if (report.outcome.kind === "oom") document.getElementById("where").before(document.getElementById("failures"));
  else document.getElementById("stacks").after(document.getElementById("failures"));
}

/** What processes wrote before they gave up, and which a signal killed. */
function errors() {
  if (report.errors.length === 0) return null;
  const rows = report.errors.map((error) => [duration(error.time_ns), name(error.rank), error.phase, name(error.text), error.count.toLocaleString("en")]);
  return table("What processes wrote before they gave up, and deaths by signal", ["Time", "Rank", "Phase", "Error", { text: "Times", n: 1 }], rows, { class: "stacked" });
}

function outOfMemory(failure) {
  const times = failure.count > 1 ? `, ${failure.count} times, the last ${duration(failure.time_ns)} after tracing began` : ` ${duration(failure.time_ns)} after tracing began`;
  const sentence = el(
    "p", {},
    el("b", {}, name(failure.api)), failure.requested_bytes !== null && [" of ", bytes(failure.requested_bytes)],
    " failed in ", name(failure.rank), failure.gpu && ` on ${failure.gpu}`, `, phase ${failure.phase}`, times, ".",
    failure.free_bytes !== null && [failure.free_is_bound ? " Free then, at most: " : " Free then: ", bytes(failure.free_bytes), "."],
    failure.held_bytes !== null && [" Traced processes held ", bytes(failure.held_bytes), " there."],
  );
  const holders = (failure.holders ?? []).map((holder) => [
    name(holder.rank), [swatch(holder.phase), name(holder.phase)], holder.kind, name(holder.owner), name(holder.frame ?? "", { class: "name code" }), bytes(holder.live_bytes), holder.live_count.toLocaleString("en"),
  ]);
  const heads = ["Rank", "Phase", "Kind", "Owner", "Asked by", { text: "Held", n: 1 }, { text: "Count", n: 1 }];
  return el(
    "div", { class: "oom" }, sentence,
    holders.length > 0 && table("Who held most of that GPU then", heads, holders, { class: "stacked" }),
    el("details", { open: failure.asked_by.length > 0 && failure.asked_by.length < 9 }, el("summary", {}, "Stack of the failed call, innermost first"), frameList(failure.asked_by)),
  );
}

function failureTable(caption, list) {
  const heads = ["Call", { text: "Asked for", n: 1 }, "Rank", "Phase", "Result", { text: "Times", n: 1 }, "Asked by"];
  const result = (failure) => (failure.driver_status !== null ? `driver status 0x${failure.driver_status.toString(16)}` : failure.result === null ? "not seen" : `error ${failure.result}`);
  const rows = list.map((failure) => [
    name(failure.api), bytes(failure.requested_bytes), name(failure.rank), failure.phase, result(failure), failure.count.toLocaleString("en"), frameList(failure.asked_by.slice(0, 3)),
  ]);
  return table(caption, heads, rows, { class: "stacked" });
}

function stacks() {
  if (report.stacks.length === 0) return void show("stacks", el("p", {}, `No memory was held ${moment}.`));
  const heads = ["Stack, innermost first", { text: "Held", n: 1 }, "Kind", "Call", { text: "Allocations", n: 1 }, { text: "Processes", n: 1 }];
  const rows = report.stacks.map((row) => [
    frameList(row.frames), bytes(row.live_bytes), [swatch(row.kind), row.kind], name(row.api, { class: "name code" }), row.live_count.toLocaleString("en"), row.processes.toLocaleString("en"),
  ]);
  show("stacks", table(`Stacks that hold most ${moment}`, heads, rows, { class: "stacked" }));
}

/** NVML against the ledger, losses, probes. */
function trust() {
  const rows = columns.map(({ process, device }) => {
    const { nvml_bytes, live_bytes, worst_residual_bytes, explained_percent, quiet_samples, samples } = device.compared;
    const residual = nvml_bytes === null ? "unknown" : change(nvml_bytes - live_bytes);
    const share = explained_percent === null ? "unknown" : `${(Math.floor(explained_percent * 10) / 10).toFixed(1)} %`;
    return [name(process.rank), device.label, bytes(nvml_bytes), bytes(live_bytes), residual, bytes(worst_residual_bytes), share, `${quiet_samples}/${samples}`, bytes(device.pre_attach_bytes)];
  });
  const n = (text) => ({ text, n: 1 });
  const heads = ["Rank", "GPU", n("NVML"), n("Ledger"), n("Residual"), n("Worst"), n("Explained"), n("Quiet samples"), n("Before tracing")];
  show("trust", ledgerNote(), losses(), rows.length > 0 && table("The ledger against NVML's per-process figure, at the last sample without a call in flight", heads, rows), evidence());
}

function ledgerNote() {
  const source = report.ledger === "ioctl" ? "Bytes come from the driver's own requests, as the driver answered them." : "Bytes come from driver API calls: what the driver takes for itself (contexts, code, local memory) is missing.";
  const { libraries, placed, failed, late } = report.probes;
  const warnings = [
    ...late.map((path) => ["Late: ", name(path), " was in use before its probes were placed; its first calls were not seen."]),
    ...failed.slice(0, 20).map((symbol) => ["Not probed: ", name(symbol)]),
    ...report.notices.map((notice) => [name(notice)]),
    report.unknown_records > 0 && [`${counted(report.unknown_records, "record")} of kinds unknown to this version were skipped.`],
  ].filter(Boolean);
  return [
    el("p", {}, source, ` ${counted(placed, "probe")} in ${counted(libraries, "library").replace("librarys", "libraries")}.`),
    warnings.length > 0 && el("ul", {}, warnings.map((text) => el("li", {}, text))),
    leftOut("notices", "notice"),
  ];
}

function losses() {
  const list = Object.entries(report.losses);
  if (list.length === 0) return el("p", {}, "Lost events: none.");
  return table("What was lost", ["Reason", { text: "Count", n: 1 }], list.map(([why, count]) => [page.meanings[why] ?? why, count.toLocaleString("en")]));
}

/** What decided phase, role and owner. */
function evidence() {
  if (!report.evidence.length) return null;
  const keys = Object.keys(report.evidence[0]);
  const isFigure = (key) => typeof report.evidence[0][key] === "number";
  const cell = (entry, key) => (key.endsWith("_bytes") || key === "bytes" ? bytes(entry[key]) : name(String(entry[key] ?? "–")));
  const heads = keys.map((key) => ({ text: key.replace(/_/g, " ").replace(/ bytes$/, ""), n: isFigure(key) ? 1 : 0 }));
  return el("details", {}, el("summary", {}, "What decided phase, role and owner of how much"), table("Evidence", heads, report.evidence.map((entry) => keys.map((key) => cell(entry, key)))));
}

function configuration() {
  const { trace } = report;
  const gpus = new Map();
  report.gpus.forEach((gpu) => gpus.set(gpu.name ?? gpu.label, (gpus.get(gpu.name ?? gpu.label) ?? 0) + 1));
  const began = trace.start_unix_ns ? new Date(trace.start_unix_ns / 1e6).toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC") : "unknown";
  const rows = [
    ["Command", trace.command.length ? name(trace.command.join(" "), { class: "name code" }) : trace.attached ? "attached to running processes" : "unknown"],
    ["Host", name([trace.host, trace.kernel && `Linux ${trace.kernel}`].filter(Boolean).join(" · "))],
    ["Driver", trace.driver ? `NVIDIA ${trace.driver}` : "unknown"],
    ["GPUs", [...gpus].map(([label, count]) => `${count} × ${label}`).join(", ") || "none"],
    ["Tracing began", `${began}, lasted ${duration(trace.duration_ns)}`],
    ["Probes", `${trace.probes || "unknown"}, driver hook ${trace.hook || "unknown"}, vramtrace ${trace.tool}`],
  ];
  show("configuration", table("The run", ["What", "Value"], rows), processes());
}

function processes() {
  const ended = (process) => (process.exit_signal !== null ? `signal ${process.exit_signal}` : process.exit_code !== null ? `code ${process.exit_code}` : "still ran");
  const heads = ["Rank", { text: "Pid", n: 1 }, "Role", "Command", "Ended", { text: "Pinned host memory", n: 1 }, { text: "Imported", n: 1 }];
  const rows = report.processes.map((process) => [
    name(process.rank), process.pid, process.role, name(process.title || process.command.join(" "), { class: "name code" }), ended(process), bytes(process.host_bytes), bytes(process.imported_bytes),
  ]);
  const idle = report.left_out.idle_processes;
  return [
    el("h3", {}, "Processes"),
    table("Traced processes with memory", heads, rows, { class: "stacked" }),
    idle > 0 && el("p", { class: "note" }, `${counted(idle, "process").replace("processs", "processes")} without GPU memory are not listed.`),
  ];
}
