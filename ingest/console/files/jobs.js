// The page of jobs: which there are and how far they are, how to stop one, and how to start one.

import { ApiError, change, download, json, newId } from "./api.js";
import { ask, explained } from "./dialog.js";
import { el, inShort, number, save, say, some, typedFor } from "./dom.js";

const KINDS = {
  export: { label: "Export", action: "Start the export", does: () => "Their values are written, one line of JSON for each counter. No counter changes." },
  add: { label: "Add to each", action: "Add", field: "delta", asks: "Add", said: (how) => ` ${number(how)}`, does: (how) => `To each of them, ${how} is added, once.` },
  reset: { label: "Reset to 0", action: "Reset all", does: () => "Each of them becomes 0. Their earlier values can be downloaded afterwards." },
  delete: { label: "Delete", action: "Delete all", does: () => "Each of them becomes 0 and leaves the lists, until it is counted again. Their earlier values can be downloaded afterwards." },
  expire: { label: "Delete unused", action: "Delete unused", field: "days", asks: "Days without a change", said: (how) => ` for ${some(how, "day")}`, does: (how) => `Those that were not changed for ${some(how, "day")} become 0 and leave the lists, until they are counted again. Their earlier values can be downloaded afterwards.` },
  compact: { label: "Reduce shards", action: "Reduce", field: "shards", asks: "Shards to leave", said: (how) => ` to ${number(how)}`, does: (how) => `Each of them has at most ${some(how, "shard")} afterwards. Their values do not change. Reads cost less.` },
};
const DANGEROUS = new Set(["reset", "delete", "expire"]);
const TELL_BEFORE = new Set(["reset", "delete", "expire"]); // their results have the values before
const MANY = 1000;
const WHOLE = /^-?\d+$/;

export function jobs() {
  let rows = new Map();
  const kind = el("select", { id: "job-kind" }, ...Object.entries(KINDS).map(([value, one]) => el("option", { value }, one.label)));
  const prefix = el("input", { id: "job-prefix", placeholder: "all counters", autocomplete: "off", spellcheck: "false" });
  const amount = el("input", { id: "job-amount", inputmode: "numeric", value: "1", required: true, pattern: "-?[0-9]{1,16}" });
  const amountLabel = el("label", { for: "job-amount" });
  const amountPart = el("div", { hidden: true }, amountLabel, amount);
  const form = el("form", { class: "tools" },
    el("div", {}, el("label", { for: "job-kind" }, "What to do"), kind),
    el("div", { class: "grow" }, el("label", { for: "job-prefix" }, "To counters that begin with"), prefix),
    amountPart, el("button", { type: "submit", class: "main" }, "Start…"));
  const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const begin = el("section", { class: "card", hidden: true }, el("h2", {}, "Start a job"), form, wrong);
  const body = el("tbody");
  const table = el("table", { class: "jobs" },
    el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, "Job"), el("th", { scope: "col", class: "progress" }, "Progress"),
      el("th", { scope: "col", class: "number small wide" }, "Counters"), el("th", { scope: "col", class: "number" }, "Actions"))), body);
  const none = el("p", { class: "hint" }, "\u00a0");
  const list = el("section", { class: "card", "aria-label": "Jobs" }, table, none);
  const node = el("div", {}, el("h1", {}, "Jobs"),
    el("p", { class: "lead" }, "A job does one thing to every counter under a prefix, exactly once, even if flushers are killed meanwhile."),
    begin, list);

  kind.addEventListener("change", () => {
    const { field, asks } = KINDS[kind.value];
    amountPart.hidden = !field;
    say(amountLabel, asks ?? "");
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    open().catch(tell);
  });

  function tell(error) {
    if (!(error instanceof ApiError)) throw error;
    say(wrong, explained(error));
    wrong.hidden = false;
  }

  async function open() {
    wrong.hidden = true;
    const [what, under, how] = [kind.value, prefix.value, amount.value.trim()];
    const { label, action, field, does } = KINDS[what];
    const found = await json(`/v1/counters?prefix=${encodeURIComponent(under)}&limit=${MANY}`);
    const [one, many] = under ? [`counter begins with “${inShort(under)}”`, `counters begin with “${inShort(under)}”`] : ["counter exists", "counters exist"];
    const count = found.next_page_token ? `More than ${number(MANY)} ${many}` : some(found.counters.length, one, many);
    const written = WHOLE.test(how) ? number(BigInt(how)) : how;
    const id = newId();
    const number_ = field ? `, "${field}": ${WHOLE.test(how) ? how : JSON.stringify(how)}` : "";
    const request = `{"kind": ${JSON.stringify(what)}, "prefix": ${JSON.stringify(under)}, "id": ${JSON.stringify(id)}${number_}}`;
    ask({
      title: `${label}: ${inShort(under) || "all counters"}`,
      parts: [el("p", {}, `${count} now. ${does(written)}`)],
      action, typed: DANGEROUS.has(what) ? typedFor(under) || "all counters" : "",
      run: async () => {
        await change("POST", "/v1/jobs", request);
        await update();
      },
    });
  }

  async function update() {
    let found;
    try {
      found = (await json("/v1/jobs")).jobs;
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      say(none, explained(error));
      begin.hidden = true;
      return;
    }
    begin.hidden = false;
    const next = new Map();
    found.forEach((job, index) => {
      const row = rows.get(job.id) ?? line(job.id, act);
      next.set(job.id, row);
      row.show(job);
      if (body.children[index] !== row.node) body.insertBefore(row.node, body.children[index] ?? null);
    });
    for (const [id, row] of rows) if (!next.has(id)) row.node.remove();
    rows = next;
    say(none, found.length ? "Jobs are remembered for a few weeks." : "No job has been started yet.");
  }

  function act(job) {
    const path = `/v1/jobs/${encodeURIComponent(job.id)}`;
    if (job.state !== "running") return download(`${path}/export`).then((blob) => save(blob, `${job.id}.ndjson`)).catch(tell);
    return ask({
      title: `Stop “${named(job)}”`,
      parts: [el("p", {}, `${some(job.visited, "counter")} visited. Their changes stay. It may take 10 seconds until the job has stopped.`)],
      action: "Stop the job", run: async () => {
        await change("DELETE", path);
        await update();
      },
    });
  }

  return { title: "Jobs", node, update };
}

/** What a job does, and to what. */
function named(job) {
  const { label = job.kind, field, said } = KINDS[job.kind] ?? {};
  return `${label}${field ? said(job[field]) : ""}: ${inShort(job.prefix) || "all counters"}`;
}

function line(id, act) {
  let known = null;
  const title = el("strong");
  const detail = el("small", { title: id });
  const bar = el("progress", { max: 1, "aria-label": `Progress of ${id}` });
  const state = el("small");
  const count = el("td", { class: "number small wide" });
  const button = el("button", { type: "button", onclick: () => act(known) });
  const node = el("tr", {}, el("td", {}, title, detail), el("td", { class: "progress" }, bar, state), count, el("td", { class: "number" }, button));
  function show(job) {
    known = job;
    say(title, named(job));
    say(detail, `${inShort(id)}, started ${new Date(job.started).toLocaleString()}`);
    bar.value = job.share;
    const failed = job.failed ? `, ${number(job.failed)} not changed` : "";
    const first = job.examples.length ? ` (${job.examples[0].counter}: ${job.examples[0].reason})` : "";
    say(state, { running: `${Math.floor(job.share * 100)} %`, done: "Done", failed: job.reason ?? "Failed" }[job.state] + failed + first);
    say(count, number(job.visited));
    button.hidden = job.state !== "running" && !TELL_BEFORE.has(job.kind) && (job.state === "failed" || job.kind !== "export");
    say(button, job.state === "running" ? "Stop…" : "Download");
  }
  return { node, show };
}
