// The processes: the one that answers, as its metrics say it, and those that the store knows.

import { ApiError, json } from "./api.js";
import { clock, el, period, say } from "./dom.js";
import { START } from "./metrics.js";

const EVERY = 10_000;
const STATES = {
  joined: "its increments are in the shared overlay",
  apart: "the shared overlay may lack some of its increments",
  stopped: "stopped; some of its increments are not applied yet",
  struck: "taken for dead",
  "at work": "at work",
};

export function fleet() {
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
