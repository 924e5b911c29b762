// Counts by time, of one counter as bars or of several as lines: of the last hour, days or months, or between two dates,
// and compared with the time before.

import { ApiError, counterPath, json } from "./api.js";
import { history } from "./chart.js";
import { COUNTS, change, el, keep, nameLink, number, period, say, saveCsv, some, zone } from "./dom.js";

const KINDS = {
  minute: { points: 60, label: "Last hour" },
  hour: { points: 48, label: "Last two days" },
  day: { points: 90, label: "Last 90 days" },
};
const EVERY = 10_000;
const HOURS = 14; // days that are shown by the hour

/** `wanted`: what the address says: `by`, or `from` and `to`; and `before`. */
export function series(names, wanted) {
  const choice = el("div", { class: "choice", role: "group", "aria-label": "Range" });
  const date = (label, id) => {
    const input = el("input", { type: "date", id, value: wanted.get(id) ?? "" });
    input.addEventListener("change", () => choose(""));
    return [el("div", {}, el("label", { for: id }, label), input), input];
  };
  const [fromNode, from] = date("From", "from");
  const [toNode, to] = date("To", "to");
  const compared = el("input", { type: "checkbox", id: "against", checked: wanted.has("before") });
  compared.addEventListener("change", () => choose(chosen));
  const told = el("p", { class: "hint" }, "\u00a0");
  const plot = history(220, COUNTS, (index) => tell(index));
  const sums = el("tbody");
  const table = el("table", { class: "sums" }, el("thead", {}, el("tr", {},
    ...["Counter", "In all", "Before", "Change"].map((title, place) => el("th", { scope: "col", class: place ? "number" : "" }, title)))), sums);
  const tools = el("div", { class: "tools" }, choice, fromNode, toNode,
    el("div", { class: "check" }, compared, el("label", { for: "against" }, "Compare with before")),
    el("button", { type: "button", onclick: save }, "CSV"));
  const kept = el("div", { hidden: true }, tools, plot.node, table, told);
  const none = el("p", { class: "hint" }, "\u00a0");
  const node = el("section", { class: "card" }, el("h2", {}, "Counts by time"), kept, none);
  let drawn = { times: [], lists: [], heads: [], whole: "\u00a0" };
  let kinds = null;
  let chosen = "";
  let asked = 0;
  let next = 0;
  let reading = null;

  function update() {
    if (performance.now() >= next) {
      next = performance.now() + EVERY;
      reading = read();
    }
    return reading;
  }

  async function read() {
    if (kinds === null) await find();
    if (kinds.length) await draw();
  }

  async function find() {
    const found = [];
    for (const by of Object.keys(KINDS)) {
      const all = await Promise.all(names.map((name) => counts(name, lately(by, 1))));
      if (all.every(Boolean)) found.push(by);
    }
    kinds = found;
    kept.hidden = !found.length;
    none.hidden = Boolean(found.length);
    say(none, names.length > 1
      ? "No period is kept for all of them. The setting COUNTERSINK_WINDOWS says which counters have counts by time, and for how long."
      : "None are kept. The setting COUNTERSINK_WINDOWS says which counters have them, and for how long.");
    choice.replaceChildren(...found.map((by) => el("button", { type: "button", "data-by": by, onclick: () => choose(by) }, KINDS[by].label)));
    if (!found.length) return;
    if (from.value && to.value) mark("");
    else mark([wanted.get("by"), "hour"].find((by) => found.includes(by)) ?? found[0]);
  }

  /** Shows a range that has a name, or with "" the days between the two dates. */
  function choose(by) {
    if (by) from.value = to.value = "";
    else if (!from.value || !to.value || from.value > to.value) return say(told, "Choose two dates, the earlier one first.");
    mark(by);
    keep([["by", by], ["from", from.value], ["to", to.value], ["before", compared.checked ? "1" : ""]]);
    draw().catch(() => {});
  }

  function mark(by) {
    chosen = by;
    for (const one of choice.children) one.setAttribute("aria-pressed", String(one.dataset.by === by));
  }

  /** Hours are put together to days of the reader. Days are those of the service, which are in UTC. */
  function range() {
    if (chosen) return lately(chosen, KINDS[chosen].points);
    const days = (Date.parse(to.value) - Date.parse(from.value)) / LENGTHS.day + 1;
    const by = ["hour", "day"].slice(days > HOURS ? 1 : 0).find((one) => kinds.includes(one)) ?? kinds[kinds.length - 1];
    if (by === "day") return { by, from: Date.parse(from.value), to: Date.parse(to.value) + LENGTHS.day };
    const length = LENGTHS[by];
    const after = new Date(`${to.value}T00:00`);
    after.setDate(after.getDate() + 1);
    return { by, from: Math.floor(new Date(`${from.value}T00:00`) / length) * length, to: Math.ceil(after / length) * length };
  }

  async function draw() {
    const mine = ++asked;
    const shown = range();
    const all = (when) => Promise.all(names.map((name) => counts(name, when)));
    const [now, then] = await Promise.all([all(shown), compared.checked ? all(before(shown)) : null]);
    if (mine !== asked) return;
    const length = LENGTHS[shown.by];
    const times = now[0].list.map((_, index) => shown.from + index * length);
    const one = names.length === 1;
    const lists = [...now, ...(one && then ? then : [])].map((found) => found.list);
    const total = (some) => some.reduce((sum, found) => sum + Number(found.total), 0);
    const against = then && one ? `; ${number(total(then))} in the ${lengthOf(shown.by, times.length)} before${spaced(change(total(now), total(then)))}` : "";
    const rough = [...now, ...(then ?? [])].every((found) => found.exact) ? "" : "; some of it may be missing";
    drawn = { times, lists, length, heads: [...names, ...(one && then ? ["before"] : [])], whole: `${number(total(now))} in all${against}${rough}. ${zone(length)}` };
    table.hidden = one;
    table.classList.toggle("plain", !then);
    if (!one) sums.replaceChildren(...names.map((name, place) => el("tr", {},
      el("td", {}, el("span", { class: `key${place}` }), nameLink(name)),
      ...[number(now[place].total), then ? number(then[place].total) : "", then ? change(Number(now[place].total), Number(then[place].total)) : ""]
        .map((text) => el("td", { class: "number" }, text)))));
    const done = one || shown.to <= Date.now() ? lists : lists.map((list) => [...list.slice(0, -1), null]); // no line falls because a period has just begun
    plot.show(times.map((at) => at / 1000), done, one, length >= LENGTHS.day);
  }

  /** Says what was counted in the period under the pointer, or in all of them. */
  function tell(index) {
    const at = drawn.times[index ?? -1];
    if (at === undefined) return say(told, drawn.whole);
    const values = drawn.lists.map((list, place) => `${number(list[index])}${place && drawn.heads[place] === "before" ? " before" : ""}`);
    say(told, `${values.join(", ")} from ${period(new Date(at), drawn.length)}.`);
  }

  function save() {
    const { times, lists, heads } = drawn;
    saveCsv("counts.csv", [["from", ...heads], ...times.map((at, index) => [new Date(at).toISOString(), ...lists.map((list) => list[index])])]);
  }

  return { node, update };
}

const lengthOf = (by, periods) => (by === "hour" && periods % 24 === 0 ? some(periods / 24, "day") : some(periods, by));
const spaced = (text) => (text ? ` (${text})` : "");

// Reading them.

const LENGTHS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 };

/** The last periods, of which the present one is the last. */
export function lately(by, points, now = Date.now()) {
  const to = (Math.floor(now / LENGTHS[by]) + 1) * LENGTHS[by];
  return { by, from: to - points * LENGTHS[by], to };
}

/** As many periods as the range has, right before it. */
const before = ({ by, from, to }) => ({ by, from: 2 * from - to, to: from });

/** The counts of a counter, one for each period of the range; null if the service keeps none of such periods. */
export async function counts(name, { by, from, to }) {
  const length = LENGTHS[by];
  const [begin, end] = [from, to].map((at) => new Date(at).toISOString());
  try {
    const found = await json(`${counterPath(name)}/series?by=${by}&from=${begin}&to=${end}`);
    const list = new Array(Math.round((to - from) / length)).fill(0);
    for (const one of found.points) list[(Date.parse(one.from) - from) / length] = Number(one.count);
    return { list, exact: found.exact, total: found.total };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
