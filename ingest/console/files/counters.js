// The page of all counters: search by prefix, live values and rates, the largest first if you want.

import { ApiError, json } from "./api.js";
import { el, inShort, keep, number, rate, say } from "./dom.js";
import { Rates } from "./rates.js";
import { start } from "./start.js";

const FIRST = 100;
const MOST = 1000; // the service lists no more in one answer
const QUICK = 50; // milliseconds that the service may take for it all the time
const REST = 10; // times as long as the service took to sort, before it is asked to sort again
const COMPARE = {
  name: () => 0, // as the service lists them
  value: (a, b) => (a.value < b.value ? 1 : a.value > b.value ? -1 : 0),
};

/** `chosen`: the prefix and the order that the address names. */
export function counters(chosen) {
  const rates = new Rates();
  let rows = new Map();
  let limit = FIRST;
  let asked = 0;
  let sorts = true; // whether the service can, which it can't on Google Cloud
  let due = 0;

  const prefix = el("input", { id: "prefix", type: "search", placeholder: "page:", autocomplete: "off", spellcheck: "false" });
  const order = el("select", { id: "order" }, el("option", { value: "name" }, "By name"), el("option", { value: "value" }, "Largest first"));
  const body = el("tbody");
  const more = el("button", { type: "button" }, "Show more");
  const note = el("p", { class: "hint told" }, "\u00a0");
  const table = el("table", { class: "list" },
    el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, "Counter"),
      el("th", { scope: "col", class: "number" }, "Value"),
      el("th", { scope: "col", class: "number small" }, "Rate"),
      el("th", { scope: "col", class: "number small wide" }, "Pending"))),
    body);
  const list = el("section", { class: "card", "aria-label": "Counters" }, note, table, el("div", { class: "more" }, more));
  const welcome = start();
  const tools = el("div", { class: "tools" },
    el("div", { class: "grow" }, el("label", { for: "prefix" }, "Names that begin with"), prefix),
    el("div", {}, el("label", { for: "order" }, "Order"), order));
  const lead = el("p", { class: "lead" }, "A value includes increments that are accepted and not stored yet.");
  const full = el("div", { hidden: true }, el("h1", {}, "Counters"), lead, tools, list);
  welcome.hidden = true;
  prefix.value = chosen.get("prefix") ?? "";
  order.value = chosen.get("order") === "value" ? "value" : "name";
  const kept = () => keep({ prefix: prefix.value, order: order.value === "name" ? "" : order.value });
  const stream = () => `/v1/watch?prefix=${encodeURIComponent(prefix.value)}`;
  const view = { title: "Counters", node: el("div", {}, full, welcome), update, stream };

  const now = () => {
    due = 0;
    view.refresh();
  };
  prefix.addEventListener("input", () => {
    limit = FIRST;
    view.follow();
    now();
    kept();
  });
  order.addEventListener("change", () => {
    now();
    kept();
  });
  more.addEventListener("click", () => {
    limit = Math.min(limit * 2, MOST);
    now();
  });

  async function update() {
    if (performance.now() < due) return; // to sort millions of counters takes the service a while
    const mine = ++asked;
    const [start, most] = [prefix.value, limit];
    const answer = await answerTo(`/v1/counters?prefix=${encodeURIComponent(start)}&limit=${most}`);
    if (mine !== asked) return; // a later request is under way
    const empty = !answer.counters.length && !start && !answer.next_page_token;
    full.hidden = empty;
    welcome.hidden = !empty;
    draw(answer.counters, start, Boolean(answer.next_page_token) || (bySize() && answer.counters.length === most), answer.exact);
  }

  const bySize = () => order.value === "value" && sorts;

  async function answerTo(path) {
    if (!bySize()) return json(path);
    const begun = performance.now();
    try {
      const answer = await json(`${path}&order=value`);
      due = performance.now() + REST * (performance.now() - begun) - REST * QUICK;
      return answer;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 422) throw error;
      sorts = false;
      return json(path);
    }
  }

  function draw(found, start, isCut, isExact) {
    const speed = rates.add(found.map((one) => [one.name, one.value, one.generation]));
    const sorted = [...found].sort(COMPARE[order.value]);
    const next = new Map();
    sorted.forEach((one, index) => {
      const row = rows.get(one.name) ?? line(one.name);
      next.set(one.name, row);
      say(row.value, number(one.value));
      say(row.rate, rate(speed.get(one.name)));
      say(row.pending, number(one.pending));
      if (body.children[index] !== row.node) body.insertBefore(row.node, body.children[index] ?? null);
    });
    for (const [name, row] of rows) if (!next.has(name)) row.node.remove();
    rows = next;
    more.hidden = !isCut || limit === MOST;
    const rough = found.filter((one) => !one.exact).length;
    note.classList.toggle("wrong", isCut && order.value === "value" && !sorts);
    say(note, told(found.length, start, isCut) + (rough ? ` ${number(rough)} of them may miss pending increments.` : "")
      + (isExact ? "" : " Counters that are not stored yet may be missing."));
  }

  function told(count, start, isCut) {
    if (!count && !isCut) return `No counter begins with “${inShort(start)}”.`;
    if (!isCut) return `${number(count)} ${count === 1 ? "counter" : "counters"}.`;
    const others = limit === MOST ? "type a prefix" : "type a prefix, or use “Show more” at the end";
    if (bySize()) return `The ${number(count)} largest. There are more: ${others}.`;
    return order.value === "value"
      ? `Only the first ${number(count)} by name are sorted. Others may be larger: ${others}.`
      : `The first ${number(count)} by name. There are more: ${others}.`;
  }

  return view;
}

function line(name) {
  const value = el("td", { class: "number" });
  const speed = el("td", { class: "number small" });
  const pending = el("td", { class: "number small wide" });
  const link = el("a", { href: `#/counter/${encodeURIComponent(name)}`, title: name }, name);
  return { node: el("tr", {}, el("td", {}, link), value, speed, pending), value, rate: speed, pending };
}
