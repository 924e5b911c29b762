// The page of one counter: its value, its parts, and how fast it has changed since the page was opened.

import { administer } from "./administer.js";
import { counterPath, json } from "./api.js";
import { changes } from "./changes.js";
import { panel } from "./chart.js";
import { RATES, clock, el, fact, fit, heading, number, rate, say } from "./dom.js";
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
  const byTime = series(name, chosen.get("by"));
  const admin = administer(name, changed);
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    heading(name),
    value, told,
    el("section", { class: "card", "aria-label": "Parts of the value" }, el("dl", { class: "facts" }, appliedNode, pendingNode, rateNode, shardsNode)),
    el("div", { class: "panels uneven" }, line.node, last.node), byTime.node, admin.node);

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
    say(told, found.exists ? `${found.exact ? "Exact" : "Not exact now"}, as of ${at}` : "This counter has never been counted, or it was deleted.");
    line.add(now);
    last.add(found.value);
    await byTime.update();
    await admin.know(found);
  }

  return { title: name, node, update, stream: () => `${counterPath(name)}/watch` };
}
