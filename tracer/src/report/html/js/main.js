// Puts the page together.

/** Links to the sections that are there, in their order. */
function contents() {
  const links = [...document.querySelectorAll("main > section:not([hidden])")].slice(1).map((section) => {
    const heading = section.querySelector("h2");
    return el("li", {}, el("a", { href: `#${section.id}` }, section.dataset.short ?? heading.textContent));
  });
  document.getElementById("contents").append(el("ul", {}, links));
}

for (const section of [overview, failures, budget, versus, torch, where, time, flame, stacks, trust, configuration]) section();
contents();
document.getElementById("made").append(`Made by vramtrace ${report.trace.tool} from ${page.name}. Sizes are in binary units; hover over one for its exact bytes.`);

// Paper shows what is folded away.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => (details.open = true)));

// The figures behind the page, for the browser's console and for tests.
globalThis.vramtrace = Object.freeze({ page, columns, tracks, view, pointAt });
