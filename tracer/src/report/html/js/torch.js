// PyTorch's caching allocator: what it handed out of what it had taken.

function torch() {
  const list = columns.filter(({ device }) => device.torch);
  if (list.length === 0 && report.paused.length === 0) return;
  const n = (text) => ({ text, n: 1 });
  const figures = ({ allocated_bytes, reserved_bytes, slack_bytes, blocks }) => [
    bytes(allocated_bytes), bytes(reserved_bytes), slack_bytes < 0 ? change(slack_bytes) : bytes(slack_bytes), blocks.toLocaleString("en"),
  ];
  const rows = list.map(({ process, device }) => [name(process.rank), device.label, ...figures(device.torch), bytes(device.torch.graph_pools.reserved_bytes)]);
  const heads = [n("Allocated"), n("Reserved"), n("Slack"), n("Blocks")];
  const phases = list.flatMap(({ process, device }) =>
    device.torch.phases.map((entry) => [name(process.rank), [swatch(entry.phase), name(entry.phase)], ...figures(entry)]),
  );
  show(
    "torch",
    list.length > 0 && table(`Blocks handed out, segments taken, and what lies between, ${moment}`, ["Rank", "GPU", ...heads, n("Graph pools")], rows, { id: "torch-table" }),
    list.map(torchDoubts),
    phases.length > 0 && el("details", {}, el("summary", {}, "By phase"), table("The same by phase: blocks by when they were asked for, segments by when they were made", ["Rank", "Phase", ...heads], phases)),
    paused(),
  );
}

/** Memory that was given back and will be taken again. */
function paused() {
  if (report.paused.length === 0) return null;
  const rows = report.paused.map((entry) => [name(entry.rank), entry.gpu, [swatch(entry.phase), name(entry.phase)], bytes(entry.bytes), entry.allocations.toLocaleString("en")]);
  const heads = ["Rank", "GPU", "Phase", { text: "Paused", n: 1 }, { text: "Count", n: 1 }];
  return [
    el("h3", {}, "Paused by torch_memory_saver"),
    table(`Given back to the GPU, to be taken again, ${moment}: part of no sum, though PyTorch goes on counting it as its own`, heads, rows, { id: "paused-table" }),
  ];
}

/** What makes the figures less than exact, and when the allocator gave up. */
function torchDoubts({ process, device }) {
  const { before_bytes, mismatches, out_of_memory } = device.torch;
  const said = [
    before_bytes !== 0 && [bytes(Math.abs(before_bytes)), " was handed out before tracing began, by the allocator's account."],
    mismatches > 0 && [`${counted(mismatches, "time")} its account did not follow from the one before: blocks were missed.`],
    ...out_of_memory.slice(-3).map((gave) => [
      "Out of memory ", duration(gave.time_ns), " after tracing began: ", bytes(gave.requested_bytes), " asked for, ", bytes(gave.allocated_bytes), " allocated of ", bytes(gave.reserved_bytes), " reserved.",
    ]),
  ].filter(Boolean);
  return said.map((text) => el("p", { class: "note" }, name(process.rank), ": ", text));
}
