// The page of all counters: search by prefix, live values and rates, the largest first if you want.

import { json } from "./api.js";
import { el, inShort, keep, number, rate, say } from "./dom.js";
import { Rates } from "./rates.js";
import { start } from "./start.js";

const FIRST = 100;
const MOST = 1000; // the service lists no more in one answer
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

  prefix.addEventListener("input", () => {
    limit = FIRST;
    view.follow();
    view.refresh();
    kept();
  });
  order.addEventListener("change", () => {
    view.refresh();
    kept();
  });
  more.addEventListener("click", () => {
    limit = Math.min(limit * 2, MOST);
    view.refresh();
  });

  async function update() {
    const mine = ++asked;
    const start = prefix.value;
    const answer = await json(`/v1/counters?prefix=${encodeURIComponent(start)}&limit=${limit}`);
    if (mine !== asked) return; // a later request is under way
    const empty = !answer.counters.length && !start && !answer.next_page_token;
    full.hidden = empty;
    welcome.hidden = !empty;
    draw(answer.counters, start, Boolean(answer.next_page_token), answer.exact);
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
    note.classList.toggle("wrong", isCut && order.value === "value");
    say(note, told(found.length, start, isCut) + (rough ? ` ${number(rough)} of them may miss pending increments.` : "")
      + (isExact ? "" : " Counters that are not stored yet may be missing."));
  }

  function told(count, start, isCut) {
    if (!count && !isCut) return `No counter begins with “${inShort(start)}”.`;
    if (!isCut) return `${number(count)} ${count === 1 ? "counter" : "counters"}.`;
    const others = limit === MOST ? "type a prefix" : "type a prefix, or use “Show more” at the end";
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
