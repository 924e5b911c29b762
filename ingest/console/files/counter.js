// The page of one counter: its value, its parts, and how fast it has changed since the page was opened.

import { administer } from "./administer.js";
import { counterPath, json } from "./api.js";
import { changes } from "./changes.js";
import { panel } from "./chart.js";
import { clock, el, fact, number, rate, say } from "./dom.js";
import { Rates } from "./rates.js";
import { series } from "./series.js";

export function counter(name) {
  const rates = new Rates();
  const value = el("p", { class: "value" }, "–");
  const told = el("p", { class: "lead" }, "\u00a0");
  const [appliedNode, applied] = fact("Applied", "in the store");
  const [pendingNode, pending] = fact("Pending", "accepted, not stored yet");
  const [rateNode, speed] = fact("Rate", "last 10 seconds");
  const [shardsNode, shards] = fact("Shards", "added when needed");
  const line = panel("Change per second", rate, [""], 220);
  const last = changes();
  const byTime = series(name);
  const admin = administer(name, () => update());
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    el("h1", {}, name),
    value, told,
    el("section", { class: "card", "aria-label": "Parts of the value" }, el("dl", { class: "facts" }, appliedNode, pendingNode, rateNode, shardsNode)),
    el("div", { class: "panels uneven" }, line.node, last.node), byTime.node, admin.node);

  async function update() {
    const found = await json(counterPath(name));
    const now = rates.add([[name, found.value]]).get(name);
    say(value, number(found.value));
    say(applied, number(found.applied));
    say(pending, number(found.pending));
    say(speed, rate(now));
    say(shards, number(found.shards));
    const at = clock(new Date(found.as_of));
    say(told, found.exists ? `${found.exact ? "Exact" : "Not exact now"}, as of ${at}` : "This counter has never been counted, or it was deleted.");
    line.add(now);
    last.add(found.value);
    admin.know(found);
    await byTime.update();
  }

  return { title: name, node, update, stream: () => `${counterPath(name)}/watch` };
}
