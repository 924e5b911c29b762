// What an operator would look at first: each check is fine or needs somebody, and says why.

import { el, number, say, seconds, some } from "./dom.js";

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

export function checks() {
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
