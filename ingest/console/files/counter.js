// The page of one counter: its value, its counts by time, its parts, and how fast it changes while the page is open.

import { administer } from "./administer.js";
import { counterPath, json } from "./api.js";
import { changes } from "./changes.js";
import { panel } from "./chart.js";
import { RATES, clock, el, fact, fit, heading, inWords, number, rate, say } from "./dom.js";
import { Rates } from "./rates.js";
import { series } from "./series.js";

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
