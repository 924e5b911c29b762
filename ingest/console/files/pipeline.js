// The way of increments through this process at a glance, read from /metrics.

import { ApiError, text } from "./api.js";
import { panel } from "./chart.js";
import { checks } from "./checks.js";
import { COUNTS, RATES, TIMES, el, fact, fit } from "./dom.js";
import { fleet } from "./fleet.js";
import { Metrics, START } from "./metrics.js";
import { Rates } from "./rates.js";

const FACTS = {
  accepted: ["Accepted", "accepted_increments_total", "safe on disk"],
  pending: ["Pending", "pending_increments", "accepted, not stored yet"],
  applied: ["Applied", "applied_increments_total", "in the store, whenever it was accepted"],
  deduplicated: ["Deduplicated", "deduplicated_increments_total", "second uses of an id"],
  rejected: ["Rejected", "rejected_increments_total", "invalid, never accepted"],
  limited: ["Limited", "limited_requests_total", "requests answered 429"],
  overloaded: ["Overloaded", "overloaded_requests_total", "requests answered 503, 507"],
};
const SUMS = [
  "accepted_increments_total", "applied_increments_total", "spooled_envelopes_total", "forwarded_envelopes_total",
  "flush_seconds_count", "flush_seconds_sum", "publish_seconds_count", "publish_seconds_sum",
];

/** What each chart shows of the metrics and of their changes per second. */
const PANELS = {
  speed: [["Increments per second", RATES, ["accepted", "applied"]], (_, now) => [now.accepted_increments_total, now.applied_increments_total]],
  pending: [["Pending increments", COUNTS, [""]], (of) => [of("pending_increments")]],
  waiting: [["Waiting to be published", COUNTS, [""]], (of) => [of("waiting_increments")]],
  commit: [["Time of a commit", TIMES, [""]], (_, now) => [mean(now, "flush_seconds")]],
  publish: [["Time of a publish", TIMES, [""]], (_, now) => [mean(now, "publish_seconds")]],
  oldest: [["Oldest message held", TIMES, [""]], (of) => [of("oldest_held_seconds")]],
  spool: [["Envelopes of the spool", RATES, ["taken", "sent"]], (_, now) => [now.spooled_envelopes_total, now.forwarded_envelopes_total]],
};
const mean = (now, name) => (now[`${name}_count`] ? now[`${name}_sum`] / now[`${name}_count`] : null);

export function pipeline() {
  const rates = new Map(); // by the start of the process, since several may answer in turn
  const facts = Object.fromEntries(Object.entries(FACTS).map(([name, [label, , hint]]) => [name, fact(label, hint)]));
  const part = (...names) => names.map((name) => facts[name][0]);
  const panels = Object.fromEntries(Object.entries(PANELS).map(([name, [how]]) => [name, panel(...how)]));
  const health = checks();
  const processes = fleet();
  const missing = el("p", { class: "card", hidden: true },
    "This listener does not serve metrics. If the service runs with --admin-port, open the console there.");
  const body = el("div", { hidden: true },
    el("section", { class: "card", "aria-label": "From accepted to applied" }, el("dl", { class: "facts flow" }, ...part("accepted", "pending", "applied"))),
    el("div", { class: "panels" }, ...Object.values(panels).map((one) => one.node)),
    health.node,
    el("section", { class: "card" }, el("h2", {}, "Refused and repeated"),
      el("dl", { class: "facts" }, ...part("deduplicated", "rejected", "limited", "overloaded"))),
    processes.node);
  const node = el("div", {},
    el("h1", {}, "Pipeline"),
    el("p", { class: "lead" }, "What this service has done since it started, with all its workers. A dash means that it does not measure it."),
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
    show(metrics);
    await processes.update(metrics, rates.size);
  }

  function show(metrics) {
    body.hidden = false;
    const of = (name) => metrics.sum(name);
    const flushes = metrics.broker !== "pubsub" || of("pulled_messages_total") > 0;
    const about = new Set(["speed", of("pending_increments") === undefined ? "waiting" : "pending", ...(flushes ? ["commit", "oldest"] : ["publish", "spool"])]);
    for (const [name, [, metric]] of Object.entries(FACTS)) fit(facts[name][1], name === "applied" && !flushes ? "–" : COUNTS.write(of(metric)));
    if (!rates.has(of(START))) rates.set(of(START), new Rates());
    const now = Object.fromEntries(rates.get(of(START)).add(SUMS.map((name) => [name, of(name) ?? 0])));
    if (!flushes) now.applied_increments_total = null;
    for (const [name, [, values]] of Object.entries(PANELS)) {
      panels[name].node.hidden = !about.has(name);
      if (about.has(name)) panels[name].add(...values(of, now));
    }
    health.show(metrics);
  }

  return { title: "Pipeline", node, update };
}
