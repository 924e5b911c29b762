// The page of one counter: its value, its counts by time, its parts, and how fast it changes while the page is open; and
// the page of several in one chart.

import { administer } from "./administer.js";
import { counterPath, json } from "./api.js";
import { panel } from "./chart.js";
import { RATES, clock, el, fact, fit, heading, inWords, number, rate, say } from "./dom.js";
import { Rates } from "./rates.js";
import { series } from "./series.js";

const SHOWN = 6; // changes

export function counter(name, chosen) {
  const rates = new Rates();
  const value = el("p", { class: "value" }, "–");
  const told = el("p", { class: "lead" }, "\u00a0");
  const [appliedNode, applied] = fact("Applied", "in the store");
  const [pendingNode, pending] = fact("Pending", "accepted, not stored yet");
  const [rateNode, speed] = fact("Rate", "last 10 seconds");
  const [shardsNode, shards] = fact("Shards", "added when needed");
  const line = panel("Change per second", RATES, [""], 220);
  const last = changes();
  const byTime = series([name], chosen);
  const admin = administer(name, changed);
  const rest = el("div", { hidden: true }, // until it is known how tall its parts are, so that nothing jumps
    byTime.node,
    el("section", { class: "card", "aria-label": "Parts of the value" }, el("dl", { class: "facts" }, appliedNode, pendingNode, rateNode, shardsNode)),
    el("div", { class: "panels uneven" }, line.node, last.node), admin.node);
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    heading(name),
    value, told, rest);

  async function changed(change) {
    await change();
    await update();
  }

  async function update() {
    const found = await json(counterPath(name));
    const now = rates.add([[name, found.value, found.generation]]).get(name);
    fit(value, number(found.value));
    fit(applied, number(found.applied));
    fit(pending, number(found.pending));
    fit(speed, rate(now));
    fit(shards, number(found.shards));
    const at = clock(new Date(found.as_of));
    say(told, found.exists ? `${inWords(found.value)}${found.exact ? "Exact" : "Not exact now"}, as of ${at}` : "This counter has never been counted, or it was deleted.");
    last.add(found.value);
    await byTime.update();
    await admin.know(found);
    rest.hidden = false;
    line.add(now);
  }

  return { title: name, node, update, stream: () => `${counterPath(name)}/watch` };
}

/** The last changes that this page has seen, newest first. Rows are made once and their texts move down, so that nothing on the page moves. */
function changes() {
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

/** The address names the counters, so it can be sent to others. */
export function compare(names, chosen) {
  const byTime = series(names, chosen);
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    el("h1", {}, names.length === 1 ? "One counter" : `${names.length} counters in one chart`),
    el("p", { class: "lead" }, "Pins in the list choose them. The address of this page keeps them, and the dates."),
    byTime.node);
  return { title: "Chart", node, update: byTime.update };
}
