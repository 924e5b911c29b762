// The last changes of one counter that this page has seen, newest first.

import { clock, el, number, say } from "./dom.js";

const SHOWN = 6;

/** Rows are made once and their texts move down, so that nothing on the page moves. */
export function changes() {
  const rows = Array.from({ length: SHOWN }, () => {
    const cells = [el("td", {}), el("td", { class: "number" }), el("td", { class: "number" })];
    return { cells, node: el("tr", {}, ...cells) };
  });
  const told = el("p", { class: "hint" }, "\u00a0");
  const table = el("table", { class: "changes" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Seen at"), el("th", { scope: "col", class: "number" }, "Change"), el("th", { scope: "col", class: "number" }, "Value"))),
    el("tbody", {}, ...rows.map((row) => row.node)));
  const node = el("section", { class: "card panel" }, el("h2", {}, "Last changes"), table, told);
  const opened = clock(new Date());
  const seen = [];
  let last = null;

  function add(value) {
    if (last !== null && value !== last) {
      const by = BigInt(value) - BigInt(last);
      seen.unshift([clock(new Date()), `${by > 0 ? "+" : "−"}${number(by > 0 ? by : -by)}`, number(value)]);
      seen.length = Math.min(seen.length, SHOWN);
    }
    last = value;
    table.style.setProperty("--long", Math.max(0, ...seen.map((texts) => texts.join("").length)));
    rows.forEach(({ cells }, place) => cells.forEach((cell, column) => say(cell, seen[place]?.[column] ?? "")));
    say(told, seen.length ? "A change may be several increments." : `None since ${opened}.`);
  }

  return { node, add };
}
