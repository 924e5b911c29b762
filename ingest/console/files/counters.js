// The page of all counters: search by a part of the name, live values, rates and trends, the pinned ones first. What a
// reader has chosen for this service, the browser keeps: pinned counters, and whether "/" goes to the search.

import { ApiError, json, key } from "./api.js";
import { Rates } from "./chart.js";
import { change, copied, el, inShort, keep, nameLink, number, rate, say, saveCsv, some } from "./dom.js";
import { counts, lately } from "./series.js";

const FIRST = 100;
const MOST = 1000; // the service lists no more in one answer
const QUICK = 50; // milliseconds that the service may take for a list all the time
const REST = 10; // times as long as a slow list took, before the next one
const COMPARE = {
  name: () => 0, // as the service lists them
  value: (a, b) => (a.value < b.value ? 1 : a.value > b.value ? -1 : 0),
};

/** `chosen`: what is searched, the order and the range of the trends, as the address names them. */
export function counters(chosen) {
  const rates = new Rates();
  let rows = new Map();
  let limit = FIRST;
  let asked = 0;
  let shown = [];
  let by = "contains"; // or "prefix", where the service can't search, as on Google Cloud
  const unsorted = new Set(); // searches whose counters it can't sort by value: there, COUNTERSINK_TOP names those that it can
  let due = 0;
  let isWanted = false; // the search, before it is shown

  const label = el("label", { for: "search" }, "Names that contain");
  const find = el("input", { id: "search", type: "search", placeholder: "page:", autocomplete: "off", spellcheck: "false" });
  const slash = el("button", { type: "button", class: "slash", "aria-label": "The key / goes to the search", "aria-pressed": String(hasSlash()), title: "The key / goes to the search: press here to turn that off or on" }, "/");
  slash.addEventListener("click", () => {
    turnSlash();
    slash.setAttribute("aria-pressed", String(hasSlash()));
  });
  const choice = (id, options) => el("select", { id }, ...options.map(([value, text]) => el("option", { value }, text)));
  const order = choice("order", [["name", "By name"], ["value", "Largest first"]]);
  const range = choice("range", Object.entries(RANGES).map(([value, one]) => [value, one.label]));
  const body = el("tbody");
  const more = el("button", { type: "button" }, "Show more");
  const note = el("p", { class: "hint told" }, "\u00a0");
  const together = el("a", { href: "#/", hidden: true }, "Pinned in one chart");
  const table = el("table", { class: "list" },
    el("thead", {}, el("tr", {},
      el("th", { scope: "col" }, "Counter"),
      el("th", { scope: "col", class: "number" }, "Value"),
      el("th", { scope: "col", class: "number small wide" }, "Rate"),
      el("th", { scope: "col", class: "spark" }, "Trend"))),
    body);
  const list = el("section", { class: "card", "aria-label": "Counters" }, el("div", { class: "above" }, note, together), table, el("div", { class: "more" }, more));
  const welcome = start();
  const tools = el("div", { class: "tools" },
    el("div", { class: "grow" }, label, el("div", { class: "find" }, find, slash)),
    el("div", {}, el("label", { for: "order" }, "Order"), order),
    el("div", {}, el("label", { for: "range" }, "Trend"), range),
    el("button", { type: "button", onclick: save }, "CSV"));
  const full = el("div", { hidden: true }, el("h1", {}, "Counters"), tools, list);
  welcome.hidden = true;
  find.value = chosen.get("find") ?? "";
  order.value = chosen.get("order") === "value" ? "value" : "name";
  range.value = Object.hasOwn(RANGES, chosen.get("range")) ? chosen.get("range") : "week";
  const kept = () => keep([["find", find.value], ["order", order.value === "name" ? "" : order.value], ["range", range.value === "week" ? "" : range.value]]);
  const spark = sparks(() => range.value);
  const stream = () => `/v1/watch?prefix=${by === "prefix" ? encodeURIComponent(find.value) : ""}`;
  const view = { title: "Counters", node: el("div", {}, full, welcome), update, stream, search };

  const now = () => {
    due = 0;
    view.refresh();
  };
  find.addEventListener("input", () => {
    limit = FIRST;
    if (by === "prefix") view.follow();
    now();
    kept();
  });
  for (const one of [order, range]) one.addEventListener("change", () => {
    now();
    kept();
  });
  more.addEventListener("click", () => {
    limit = Math.min(limit * 2, MOST);
    now();
  });

  function search() {
    isWanted = full.hidden;
    find.focus();
  }

  async function update() {
    if (performance.now() < due) return; // to sort or to search millions of counters takes the service a while
    const mine = ++asked;
    const text = find.value;
    const pinned = pins();
    const [answer, first] = await Promise.all([listed(text), text || !pinned.length ? [] : named(pinned)]);
    if (mine !== asked) return; // a later request is under way
    const empty = !answer.counters.length && !text && !answer.next_page_token;
    full.hidden = empty;
    welcome.hidden = !empty;
    if (isWanted) search();
    draw(answer, first, text, pinned);
    spark.work();
  }

  const bySize = () => order.value === "value" && !unsorted.has(find.value) && (by === "prefix" || !find.value);

  async function listed(text) {
    const most = order.value === "value" && text && by === "contains" ? MOST : limit; // those are sorted here
    const begun = performance.now();
    try {
      const answer = await json(`/v1/counters?limit=${most}${text && `&${by}=${encodeURIComponent(text)}`}${bySize() ? "&order=value" : ""}`);
      due = performance.now() + REST * (performance.now() - begun - QUICK);
      return answer;
    } catch (error) {
      if (error instanceof ApiError && error.field === "order" && !unsorted.has(find.value)) unsorted.add(find.value);
      else if (error instanceof ApiError && error.field === "contains") by = "prefix";
      else throw error;
      say(label, by === "prefix" ? "Names that begin with" : "Names that contain");
      return listed(text);
    }
  }

  /** Readings of the pinned ones, wherever they are in the order. The key of this tab may not read all of them. */
  async function named(pinned) {
    try {
      return (await json(`/v1/counters?${pinned.map((name) => `name=${encodeURIComponent(name)}`).join("&")}`)).counters.filter((one) => one.exists);
    } catch {
      return [];
    }
  }

  function draw(answer, first, text, pinned) {
    const found = answer.counters;
    const isPart = Boolean(answer.next_page_token);
    const isCut = isPart || found.length > limit || (bySize() && found.length === limit);
    const isFirst = new Set(pinned);
    const all = [...new Map([...first, ...found].map((one) => [one.name, one])).values()];
    const speed = rates.add(all.map((one) => [one.name, one.value, one.generation]));
    shown = all.sort((a, b) => isFirst.has(b.name) - isFirst.has(a.name) || COMPARE[order.value](a, b)).slice(0, limit + first.length);
    const next = new Map();
    shown.forEach((one, index) => {
      const row = rows.get(one.name) ?? line(one.name);
      next.set(one.name, row);
      say(row.value, number(one.value));
      say(row.rate, rate(speed.get(one.name)));
      row.pin.setAttribute("aria-pressed", String(isFirst.has(one.name)));
      if (body.children[index] !== row.node) body.insertBefore(row.node, body.children[index] ?? null);
    });
    for (const [name, row] of rows) if (!next.has(name)) spark.forget(row.spark), row.node.remove();
    rows = next;
    more.hidden = !isCut || limit === MOST;
    const rough = shown.filter((one) => !one.exact).length;
    note.classList.toggle("wrong", isPart && order.value === "value");
    say(note, told(found.length, text, isCut, isPart) + (rough ? ` ${number(rough)} of them may miss pending increments.` : "")
      + (answer.exact ? "" : " Counters that are not stored yet may be missing.")
      + (spark.hasNone() ? " No trends: the setting COUNTERSINK_WINDOWS says which counters have counts by time." : ""));
    together.hidden = pinned.length < 2;
    together.href = `#/chart?${new URLSearchParams(pinned.map((name) => ["name", name]))}`;
  }

  function told(count, text, isCut, isPart) {
    if (!count && !isCut) return `No counter’s name ${by === "prefix" ? "begins with" : "contains"} “${inShort(text)}”.`;
    if (!isCut) return `${some(count, "counter")}.`;
    const others = limit === MOST ? "search" : "search, or use “Show more” at the end";
    if (order.value === "name") return `The first ${number(count)} by name. There are more: ${others}.`;
    if (isPart) return `Only the first ${number(count)} by name are sorted. Others may be larger: ${others}.`;
    return `The ${number(Math.min(count, limit))} largest. There are more: ${others}.`;
  }

  function line(name) {
    const value = el("td", { class: "number" });
    const speed = el("td", { class: "number small wide" });
    const pin = el("button", { type: "button", class: "pin", "aria-label": `Pin ${inShort(name)}`, title: "Pin: shown first, in this browser" });
    pin.addEventListener("click", () => {
      turn(name);
      now();
    });
    const cell = spark.cell(name);
    return { node: el("tr", {}, el("td", {}, el("div", { class: "name" }, pin, nameLink(name))), value, speed, cell), value, rate: speed, pin, spark: cell };
  }

  function save() {
    saveCsv("counters.csv", [["counter", "value", "pending", "exact", "as_of"], ...shown.map((one) => [one.name, one.value, one.pending, one.exact, one.as_of])]);
  }

  return view;
}

/** What is shown while nothing has been counted: commands to copy, with the address of this service. */
function start() {
  const header = key.get() ? ' -H "Authorization: Bearer $COUNTERSINK_KEY"' : "";
  const url = location.origin;
  return el("div", {},
    el("h1", {}, "Nothing has been counted yet"),
    el("p", { class: "lead" }, "Copy a command into a terminal. The counter appears here as soon as it counts."),
    step("Count one", `curl -X POST${header} ${url}/v1/counters/visits`),
    step("Count once, even if you send it twice", `curl -X POST${header} ${url}/v1/counters/visits -d '{"delta": 5, "id": "order-1041"}'`),
    step("Count many at once", `curl -X POST${header} ${url}/v1/increments -d '{"counters": {"visits": 3, "page:home": 2}}'`),
    step("Read the total", `curl${header} ${url}/v1/counters/visits`));
}

function step(title, command) {
  const code = el("code", {}, command);
  return el("section", { class: "card" }, el("h2", {}, title), el("div", { class: "step" }, el("pre", {}, code), copied(code, `Copy: ${title}`)));
}

// Trends.

const EVERY = 60_000; // milliseconds between two looks at a trend
const [WIDTH, HEIGHT] = [96, 24];

/** What can be chosen, with the periods that show it, the best first. */
const RANGES = {
  day: { label: "24 hours", periods: [["hour", 24]] },
  week: { label: "7 days", periods: [["hour", 168], ["day", 7]] },
  month: { label: "30 days", periods: [["day", 30], ["hour", 720]] },
};

/** A spark line and a trend for each counter in a list, of those that are in sight. `range` tells which of the ranges is chosen. */
function sparks(range) {
  const inSight = new Set();
  let filled = 0;
  let known = 0;
  let busy = false;
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) isIntersecting ? inSight.add(target.spark) : inSight.delete(target.spark);
    work();
  });

  /** Asks for what is not known or old, one after the other, so that a long list is no load. */
  async function work() {
    if (busy) return;
    busy = true;
    try {
      for (const one of inSight) if (one.range !== range() || performance.now() > one.until) await fill(one);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the list itself says that the service is away
    } finally {
      busy = false;
    }
  }

  async function fill(one) {
    const asked = range();
    let found = null;
    for (const [by, points] of RANGES[asked].periods) {
      const kept = await counts(one.name, lately(by, 2 * points + 1));
      if (kept) found = { list: kept.list, points };
      if (kept) break;
    }
    filled += 1;
    known += Boolean(found);
    one.range = asked;
    one.until = performance.now() + EVERY;
    drawTrend(one, found, RANGES[asked].label);
  }

  return {
    work,
    /** Whether no counter in sight has counts by time. */
    hasNone: () => filled > 0 && !known,
    /** The cell of a counter. */
    cell(name) {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const trend = el("span", {}, "");
      const node = el("td", { class: "spark" }, line, trend);
      line.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
      line.setAttribute("aria-hidden", "true");
      line.append(...["area", "line"].map((kind) => {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("class", kind);
        return path;
      }));
      node.spark = { name, line, trend, node, range: "", until: 0 };
      observer.observe(node);
      return node;
    },
    forget(node) {
      observer.unobserve(node);
      inSight.delete(node.spark);
    },
  };
}

/** Compares complete periods: the present one, which has just begun, is drawn only. */
function drawTrend({ line, trend, node }, known, label) {
  const { list, points } = known ?? { list: [], points: 0 };
  const shown = list.slice(-points - 1);
  const top = Math.max(1, ...shown);
  const low = Math.min(0, ...shown);
  const at = (count, index) => `${((index * WIDTH) / points).toFixed(1)} ${(HEIGHT - 1 - ((count - low) / (top - low)) * (HEIGHT - 3)).toFixed(1)}`;
  const path = known ? `M${shown.map(at).join("L")}` : "";
  line.children[0].setAttribute("d", path && `${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`);
  line.children[1].setAttribute("d", path);
  const sum = (some) => some.reduce((total, count) => total + count, 0);
  const [now, then] = [sum(list.slice(-points - 1, -1)), sum(list.slice(0, points))];
  say(trend, known ? change(now, then) : "–");
  node.title = known ? `${number(now)} in ${label}, ${number(then)} in the ${label} before` : "No counts by time are kept for it.";
}

// What the browser keeps.

const KEPT = "countersink-pins";
const SLASH = "countersink-slash";
export const MOST_PINS = 6; // a chart has a colour for each

const pins = () => {
  try {
    return [JSON.parse(localStorage.getItem(KEPT) ?? "[]")].flat().map(String).slice(0, MOST_PINS);
  } catch {
    return [];
  }
};

/** Pins the counter, or takes its pin away. With too many, the one that was pinned first goes. */
function turn(name) {
  const others = pins().filter((one) => one !== name);
  localStorage.setItem(KEPT, JSON.stringify(others.length < pins().length ? others : [...others, name].slice(-MOST_PINS)));
}

/** Whether the key "/" goes to the search. Who speaks to the computer, and so presses keys by accident, turns it off. */
export const hasSlash = () => {
  try {
    return localStorage.getItem(SLASH) !== "off";
  } catch {
    return true;
  }
};

const turnSlash = () => localStorage.setItem(SLASH, hasSlash() ? "off" : "on");
