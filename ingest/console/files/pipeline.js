// The way of increments through this process at a glance, read from /metrics; what an operator would look at first; and
// the processes.

import { ApiError, json, text } from "./api.js";
import { Rates, panel } from "./chart.js";
import { COUNTS, RATES, TIMES, clock, el, fact, fit, number, period, say, seconds, some } from "./dom.js";

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

const START = "start_time_seconds";
const SAMPLE = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;
const EVERY = 10_000; // milliseconds between two looks at the fleet
const STATES = {
  joined: "its increments are in the shared overlay",
  apart: "the shared overlay may lack some of its increments",
  stopped: "stopped; some of its increments are not applied yet",
  struck: "taken for dead",
  "at work": "at work",
};

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

/** The text format of Prometheus. */
class Metrics {
  #samples = new Map();

  constructor(exposition) {
    for (const line of exposition.split("\n")) {
      const found = SAMPLE.exec(line);
      if (!found) continue;
      const labels = Object.fromEntries([...(found[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
      const samples = this.#samples.get(found[1]) ?? [];
      samples.push([labels, Number(found[3])]);
      this.#samples.set(found[1], samples);
    }
  }

  /** All samples of a metric, as labels and value. */
  all(name) {
    return this.#samples.get(`countersink_${name}`) ?? [];
  }

  /** The kind of broker, which the process may not tell. */
  get broker() {
    return this.all(START)[0]?.[0].broker;
  }

  /** The sum of all samples, or undefined if there is none. */
  sum(name) {
    const found = this.all(name);
    return found.length ? found.reduce((sum, [, value]) => sum + value, 0) : undefined;
  }
}

/** The processes: the one that answers, as its metrics say it, and those that the store knows. */
function fleet() {
  const own = el("p", { class: "own" }, "\u00a0");
  const told = el("p", { class: "hint" }, "\u00a0");
  const body = el("tbody");
  const table = el("table", { class: "fleet", hidden: true },
    el("thead", {}, el("tr", {}, ...["Process", "Role", "State"].map((name) => el("th", { scope: "col" }, name)))), body);
  const node = el("section", { class: "card" }, el("h2", {}, "Processes"), own, table, told);
  let next = 0;

  async function update(metrics, answered) {
    const [[parts, since]] = [...metrics.all(START), [null]];
    const begun = parts && new Date(since * 1000);
    say(own, parts
      ? `This process has been up since ${period(begun, 1)}:${clock(begun).slice(-2)}. Broker: ${parts.broker}. Store: ${parts.store}. Overlay: ${parts.overlay}.${answered > 1 ? ` ${answered} processes answer this page in turn, each with its own numbers.` : ""}`
      : "This process does not say which broker and store it uses.");
    if (performance.now() < next) return;
    next = performance.now() + EVERY;
    try {
      show(await json("/v1/fleet"));
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      next = Infinity;
      say(told, error.status === 403 ? "A key with the scope admin shows the others." : "All processes share one file, which has no list of them.");
    }
  }

  function show(found) {
    const row = (role) => (one) => el("tr", {}, el("td", {}, el("code", {}, one.id)), el("td", {}, role),
      el("td", {}, STATES[one.state] + (one.spool && one.state !== "joined" ? "; it may have envelopes in its spool" : "")));
    body.replaceChildren(...found.ingests.map(row("ingest")), ...found.flushers.map(row("flusher")));
    table.hidden = !body.children.length;
    say(told, found.whole ? "Reads can be exact." : "Reads are not exact now: a process may have accepted increments that the others do not see.");
  }

  return { node, update };
}

// Health.

const REPEATED = "receipts exist"; // retries because of second uses of an id
const MOST_RETRIES = 0.1; // of the commits
const ELSEWHERE = [null, "Not known here, since this process does not flush. Flushers have metrics of their own."];
const doesNotFlush = (of, broker) => broker === "pubsub" && !of("pulled_messages_total");

/** Each returns whether it is fine, or null if it is not known here, and a sentence; or nothing if it does not apply. */
const CHECKS = {
  Drift: (of) => {
    const drift = of("drift_increments");
    if (drift === undefined) return [null, "Not known here, since the broker is elsewhere. countersink audit compares."];
    if (!drift) return [true, "0: everything that was accepted is applied, pending, deduplicated or a dead letter."];
    return [drift < 0 ? null : false, `${number(drift)}. It is below 0 between a commit and its acknowledgement; otherwise run countersink audit.`];
  },
  "Dead letters": (of, _, broker) => {
    const dead = of("dead_lettered_messages_total") ?? 0;
    if (!dead && doesNotFlush(of, broker)) return ELSEWHERE;
    if (!dead) return [true, "None since the start."];
    return [false, `${some(dead, "message")} since the start. They are not counted unless somebody has replayed them.`];
  },
  Contention: (of, all, broker) => {
    if (doesNotFlush(of, broker)) return ELSEWHERE;
    const commits = of("flushes_total");
    if (!commits) return [null, "Nothing has been committed yet."];
    const retries = all("flush_retries_total").filter(([{ why }, value]) => value && why !== REPEATED);
    const sum = retries.reduce((before, [, value]) => before + value, 0);
    const why = retries.length ? ` (${retries.map(([labels, value]) => `${labels.why}: ${number(value)}`).join(", ")})` : "";
    const raised = of("shard_raises_total");
    const shards = raised ? ` ${some(raised, "counter")} got more shards; the largest number is ${number(of("most_shards"))}.` : " No counter needed more shards.";
    return [sum < commits * MOST_RETRIES, `${some(sum, "retry", "retries")} for ${some(commits, "commit")}${why}.${shards}`];
  },
  Spool: (of, _, broker) => {
    if (broker !== "pubsub") return null;
    const [taken, sent] = [of("spooled_envelopes_total") ?? 0, of("forwarded_envelopes_total") ?? 0];
    const moved = taken || sent ? ` Since the start it took ${some(taken, "envelope")} and sent ${number(sent)}.` : "";
    if (of("spool_buried_envelopes")) return [false, `${some(of("spool_buried_envelopes"), "envelope is", "envelopes are")} too large to be sent: countersink dlq list.${moved}`];
    if (of("spooling")) return [false, `It takes increments, because the broker is unavailable.${moved}`];
    return [true, `Not in use: the broker takes everything.${moved}`];
  },
  Subscription: (of, _, broker) => broker !== "pubsub" ? null : of("subscription_missing")
    ? [false, "It is missing, detached, or belongs to another topic. Nothing is published meanwhile."]
    : [true, "It keeps what is published."],
  Clock: (of, _, broker) => {
    if (broker !== "pubsub") return null;
    const ahead = of("clock_ahead_seconds") ?? 0;
    const off = Math.abs(ahead);
    return [off < 3600, off < 0.001 ? "The same as the store's." : `${seconds(off)} ${ahead > 0 ? "ahead of" : "behind"} the store's.`];
  },
};

const PAGES = { "Dead letters": "#/dead-letters" };

/** What an operator would look at first: each check is fine or needs somebody, and says why. */
function checks() {
  const rows = Object.keys(CHECKS).map((name) => {
    const state = el("span", { class: "dot" });
    const [alarm, told] = [el("strong", { hidden: true }, "Look at this. "), el("span", {})];
    return { name, state, alarm, told, node: el("div", {}, el("dt", {}, state, name in PAGES ? el("a", { href: PAGES[name] }, name) : name), el("dd", {}, alarm, told)) };
  });
  const node = el("section", { class: "card" }, el("h2", {}, "Health"), el("dl", { class: "checks" }, ...rows.map((row) => row.node)));

  function show(metrics) {
    for (const { name, state, alarm, told, node: row } of rows) {
      const found = CHECKS[name]((metric) => metrics.sum(metric), (metric) => metrics.all(metric), metrics.broker);
      row.hidden = !found;
      if (!found) continue;
      const [fine, text] = found;
      state.className = `dot ${fine === null ? "unknown" : fine ? "fine" : "bad"}`;
      say(told, text);
      alarm.hidden = fine !== false;
    }
  }

  return { node, show };
}
