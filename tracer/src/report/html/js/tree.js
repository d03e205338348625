// Stacks as a tree: rows of the page's data laid out below the roots that the reader chose.

const LOOKS = ["native", "python", "plumbing", "call"];
/** Column of a row for each kind of bytes; in a comparison's rows stand what came and what went. */
const VALUES = { live: 4, peak: 5, allocated: 6, more: 4, less: 5 };
const ROOT_ORDERS = {
  rank: ["rank"], "phase,rank": ["phase", "rank"], "rank,phase": ["rank", "phase"], phase: ["phase"], owner: ["owner"], none: [],
};

/** A box of the flame graph. `sums` are live, peak and allocated bytes. */
function box(text, place, look, parent) {
  return { text, place, look, parent, level: parent ? parent.level + 1 : 0, sums: [0, 0, 0], children: new Map(), shade: null };
}

/**
 * The tree of `flame` with labels of `order` at its roots; without the frames of interpreter, runtime and driver unless `all`.
 */
function buildTree(flame, order, all) {
  const top = box("All", "", "group", null);
  const paths = framePaths(flame, all);
  for (const row of flame.rows) {
    const [rank, phase, owner, node, live, peak, allocated] = row;
    const label = { rank: flame.ranks[rank], phase: flame.phases[phase], owner: flame.owners[owner] };
    let at = top;
    const add = () => ((at.sums[0] += live), (at.sums[1] += peak), (at.sums[2] += allocated));
    add();
    for (const axis of ROOT_ORDERS[order]) {
      at = child(at, `\u0000${label[axis]}`, label[axis], "", "group");
      if (axis === "phase") at.shade = color(label[axis]);
      add();
    }
    for (const n of paths(node)) {
      const [, text, place, look] = flame.nodes[n];
      at = child(at, n, flame.names[text], flame.names[place], LOOKS[look]);
      add();
    }
  }
  return top;
}

/** Boxes of one parent with the same function, place and look are one: hidden frames between them leave doubles. */
function child(parent, key, text, place, look) {
  const id = typeof key === "string" ? key : `${look}\u0000${text}\u0000${place}`;
  let found = parent.children.get(id);
  if (!found) parent.children.set(id, (found = box(text, place, look, parent)));
  return found;
}

/** Nodes from the outermost frame to a node; those of many rows are the same, so they are kept. */
function framePaths(flame, all) {
  const kept = new Map();
  return (node) => {
    if (!kept.has(node)) {
      const path = [];
      for (let n = node; n >= 0; n = flame.nodes[n][0] - 1) {
        const look = LOOKS[flame.nodes[n][3]];
        if (all || look !== "plumbing" || (n === node && path.length === 0)) path.push(n);
      }
      kept.set(node, path.reverse());
    }
    return kept.get(node);
  };
}

/** Children of a box by size for one value; those without bytes are left out. */
function sorted(at, value) {
  const index = VALUES[value] - 4;
  return [...at.children.values()].filter((child) => child.sums[index] > 0).sort((a, b) => b.sums[index] - a.sums[index] || (a.text < b.text ? -1 : 1));
}

/** Bytes of the boxes that `match` picks, none counted twice where one lies within another. */
function matched(at, index, match) {
  if (match(at)) return at.sums[index];
  let sum = 0;
  for (const child of at.children.values()) sum += matched(child, index, match);
  return sum;
}
