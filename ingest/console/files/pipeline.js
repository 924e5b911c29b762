// The way of increments through this process at a glance, read from /metrics.

import { ApiError, text } from "./api.js";
import { panel } from "./chart.js";
import { checks } from "./checks.js";
import { el, fact, number, rate, say, seconds } from "./dom.js";
import { fleet } from "./fleet.js";
import { Metrics } from "./metrics.js";
import { Rates } from "./rates.js";

const FACTS = {
  accepted: ["Accepted", "accepted_increments_total", "safe on disk"],
  pending: ["Pending", "pending_increments", "accepted, not stored yet"],
  applied: ["Applied", "applied_increments_total", "in the store"],
  deduplicated: ["Deduplicated", "deduplicated_increments_total", "second uses of an id"],
  rejected: ["Rejected", "rejected_increments_total", "invalid, never accepted"],
  limited: ["Limited", "limited_requests_total", "requests answered 429"],
  overloaded: ["Overloaded", "overloaded_requests_total", "requests answered 503, 507"],
};
const whole = (value) => (value === null ? "–" : number(value));

export function pipeline() {
  const rates = new Rates();
  const facts = Object.fromEntries(Object.entries(FACTS).map(([name, [label, , hint]]) => [name, fact(label, hint)]));
  const part = (...names) => names.map((name) => facts[name][0]);
  const speed = panel("Increments per second", rate, ["accepted", "applied"]);
  const pending = panel("Pending increments", whole, [""]);
  const flush = panel("Time of a commit", seconds, [""]);
  const oldest = panel("Oldest message held", seconds, [""]);
  const health = checks();
  const processes = fleet();
  const missing = el("p", { class: "card", hidden: true },
    "This listener does not serve metrics. If the service runs with --admin-port, open the console there.");
  const body = el("div", { hidden: true },
    el("section", { class: "card", "aria-label": "From accepted to applied" }, el("dl", { class: "facts flow" }, ...part("accepted", "pending", "applied"))),
    el("div", { class: "panels" }, speed.node, pending.node, flush.node, oldest.node),
    health.node,
    el("section", { class: "card" }, el("h2", {}, "Refused and repeated"),
      el("dl", { class: "facts" }, ...part("deduplicated", "rejected", "limited", "overloaded"))),
    processes.node);
  const node = el("div", {},
    el("h1", {}, "Pipeline"),
    el("p", { class: "lead" }, "What this process has done since it started. A dash means that it does not measure it."),
    missing, body);

  async function update() {
    let metrics;
    try {
      metrics = new Metrics(await text("/metrics"));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      missing.hidden = false;
      body.hidden = true;
      return;
    }
    body.hidden = false;
    for (const [name, [, metric]] of Object.entries(FACTS)) say(facts[name][1], whole(metrics.sum(metric) ?? null));
    const of = (name) => [name, metrics.sum(name) ?? 0];
    const now = rates.add(["accepted_increments_total", "applied_increments_total", "flush_seconds_count", "flush_seconds_sum"].map(of));
    speed.add(now.get("accepted_increments_total"), now.get("applied_increments_total"));
    pending.add(metrics.sum("pending_increments"));
    flush.add(now.get("flush_seconds_count") ? now.get("flush_seconds_sum") / now.get("flush_seconds_count") : null);
    oldest.add(metrics.sum("oldest_held_seconds"));
    health.show(metrics);
    await processes.update(metrics);
  }

  return { title: "Pipeline", node, update };
}
