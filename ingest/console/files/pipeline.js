// The way of increments through this process at a glance, read from /metrics.

import { ApiError, text } from "./api.js";
import { el, fact, number, rate, say, seconds } from "./dom.js";
import { Rates } from "./rates.js";

const TOTALS = {
  accepted: "countersink_accepted_increments_total",
  applied: "countersink_applied_increments_total",
  rejected: "countersink_rejected_increments_total",
  deduplicated: "countersink_deduplicated_increments_total",
  dead: "countersink_dead_lettered_increments_total",
  drift: "countersink_drift_increments",
  pending: "countersink_pending_increments",
  spooled: "countersink_spooled_envelopes_total",
  retries: "countersink_flush_retries_total",
  oldest: "countersink_oldest_held_seconds",
  flushes: "countersink_flush_seconds_count",
  flushTime: "countersink_flush_seconds_sum",
};

/** Sums of all samples by name, without their labels. */
export function parse(exposition) {
  const sums = new Map();
  for (const line of exposition.split("\n")) {
    const found = /^([a-z_]+)(?:\{.*\})? (\S+)$/.exec(line);
    if (found) sums.set(found[1], (sums.get(found[1]) ?? 0) + Number(found[2]));
  }
  return sums;
}

export function pipeline() {
  const rates = new Rates();
  const facts = {
    accepted: fact("Accepted", "safe on disk"),
    pending: fact("Pending", "accepted, not stored yet"),
    applied: fact("Applied", "in the store"),
    acceptRate: fact("Accepted now"),
    applyRate: fact("Applied now"),
    flush: fact("Time of a flush", "mean since the start"),
    oldest: fact("Oldest held", "by this flusher"),
    retries: fact("Flush retries"),
    deduplicated: fact("Deduplicated", "second uses of an id"),
    rejected: fact("Rejected", "never accepted"),
    dead: fact(el("a", { href: "#/dead-letters" }, "Dead letters"), "see and replay them"),
    spooled: fact("Spooled", "while the broker was away"),
    drift: fact("Drift", "has to be 0 at rest"),
  };
  const part = (...names) => names.map((name) => facts[name][0]);
  const missing = el("p", { class: "card", hidden: true },
    "This listener does not serve metrics. If the service runs with --admin-port, open the console there.");
  const body = el("div", {},
    el("section", { class: "card", "aria-label": "From accepted to applied" }, el("dl", { class: "facts flow" }, ...part("accepted", "pending", "applied"))),
    el("section", { class: "card" }, el("h2", {}, "Speed"), el("dl", { class: "facts" }, ...part("acceptRate", "applyRate", "flush", "oldest", "retries"))),
    el("section", { class: "card" }, el("h2", {}, "Everything else"), el("dl", { class: "facts" }, ...part("deduplicated", "rejected", "dead", "spooled", "drift"))));
  const node = el("div", {},
    el("h1", {}, "Pipeline"),
    el("p", { class: "lead" }, "Since this process started. A dash means that this process does not measure it."),
    missing, body);

  async function update() {
    let sums;
    try {
      sums = parse(await text("/metrics"));
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      missing.hidden = false;
      body.hidden = true;
      return;
    }
    const of = (name) => sums.get(TOTALS[name]);
    const put = (name, value, write = number) => say(facts[name][1], value === undefined ? "–" : write(value));
    for (const name of ["accepted", "pending", "applied", "deduplicated", "rejected", "dead", "spooled", "drift"]) put(name, of(name));
    put("retries", of("retries") ?? 0); // it has labels, and no sample before the first retry
    put("oldest", of("oldest"), seconds);
    put("flush", of("flushes") ? of("flushTime") / of("flushes") : undefined, seconds);
    const speed = rates.add([["accepted", of("accepted") ?? 0], ["applied", of("applied") ?? 0]]);
    put("acceptRate", speed.get("accepted"), rate);
    put("applyRate", speed.get("applied"), rate);
  }

  return { title: "Pipeline", node, update };
}
