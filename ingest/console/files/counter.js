// The page of one counter: its value, its counts by time, its parts, how fast it changes while the page is open, and what
// an administrator does to it; and the page of several in one chart.

import { change, counterPath, json, newId } from "./api.js";
import { Rates, panel } from "./chart.js";
import { ask, whyNot } from "./dialog.js";
import { RATES, clock, el, fact, fit, heading, inShort, inWords, number, rate, say, typedFor } from "./dom.js";
import { series } from "./series.js";

const SHOWN = 6; // changes

export function counter(name, chosen) {
  const rates = new Rates();
  const value = el("p", { class: "value" }, "–");
  const told = el("p", { class: "lead" }, "\u00a0");
  const [appliedNode, applied] = fact("Applied", "in the store");
  const [pendingNode, pending] = fact("Pending", "accepted, not stored yet");
  const [rateNode, speed] = fact("Rate", "last 10 seconds");
  const [shardsNode, shards] = fact("Shards", "added when needed");
  const line = panel("Change per second", RATES, [""], 220);
  const last = changes();
  const byTime = series([name], chosen);
  const admin = administer(name, changed);
  const rest = el("div", { hidden: true }, // until it is known how tall its parts are, so that nothing jumps
    byTime.node,
    el("section", { class: "card", "aria-label": "Parts of the value" }, el("dl", { class: "facts" }, appliedNode, pendingNode, rateNode, shardsNode)),
    el("div", { class: "panels uneven" }, line.node, last.node), admin.node);
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    heading(name),
    value, told, rest);

  async function changed(change) {
    await change();
    await update();
  }

  async function update() {
    const found = await json(counterPath(name));
    const now = rates.add([[name, found.value, found.generation]]).get(name);
    fit(value, number(found.value));
    fit(applied, number(found.applied));
    fit(pending, number(found.pending));
    fit(speed, rate(now));
    fit(shards, number(found.shards));
    const at = clock(new Date(found.as_of));
    say(told, found.exists ? `${inWords(found.value)}${found.exact ? "Exact" : "Not exact now"}, as of ${at}` : "This counter has never been counted, or it was deleted.");
    last.add(found.value);
    await byTime.update();
    await admin.know(found);
    rest.hidden = false;
    line.add(now);
  }

  return { title: name, node, update, stream: () => `${counterPath(name)}/watch` };
}

/** The last changes that this page has seen, newest first. Rows are made once and their texts move down, so that nothing on the page moves. */
function changes() {
  const rows = Array.from({ length: SHOWN }, () => {
    const cells = [el("td", {}), el("td", { class: "number" }), el("td", { class: "number" })];
    return { cells, node: el("tr", {}, ...cells) };
  });
  const told = el("p", { class: "hint" }, "\u00a0");
  const table = el("table", { class: "changes" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Seen at"), el("th", { scope: "col", class: "number" }, "Change"), el("th", { scope: "col", class: "number" }, "Value"))),
    el("tbody", {}, ...rows.map((row) => row.node)));
  const node = el("section", { class: "card panel" }, el("h2", {}, "Last changes"), table, told);
  const opened = clock(new Date());
  const seen = [];
  let last = null;

  function add(value) {
    if (last !== null && value !== last) {
      const by = BigInt(value) - BigInt(last);
      seen.unshift([clock(new Date()), `${by > 0 ? "+" : "−"}${number(by > 0 ? by : -by)}`, number(value)]);
      seen.length = Math.min(seen.length, SHOWN);
    }
    last = value;
    table.style.setProperty("--long", Math.max(0, ...seen.map((texts) => texts.join("").length)));
    rows.forEach(({ cells }, place) => cells.forEach((cell, column) => say(cell, seen[place]?.[column] ?? "")));
    say(told, seen.length ? "A change may be several increments." : `None since ${opened}.`);
  }

  return { node, add };
}

/** The address names the counters, so it can be sent to others. */
export function compare(names, chosen) {
  const byTime = series(names, chosen);
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    el("h1", {}, names.length === 1 ? "One counter" : `${names.length} counters in one chart`),
    el("p", { class: "lead" }, "Pins in the list choose them. The address of this page keeps them, and the dates."),
    byTime.node);
  return { title: "Chart", node, update: byTime.update };
}

const WHOLE = /^-?\d{1,16}$/;

/** What an administrator does to one counter: set, reset, delete, and the number of its shards. `changed` runs a change of the counter, and shows what has become of it. */
function administer(name, changed) {
  const path = counterPath(name);
  let known = null;
  const button = (label, open) => el("button", { type: "button", disabled: true, onclick: open }, label);
  const buttons = [button("Set…", set), button("Reset…", reset), button("Shards…", shards), button("Delete…", remove)];
  const choice = el("div", { class: "choice", hidden: true }, ...buttons);
  const told = el("p", { class: "hint" }, "\u00a0");
  const node = el("section", { class: "card" }, el("h2", {}, "Change this counter"), choice, told);
  const present = el("p", {});
  const becomes = el("output", { class: "becomes", for: "ask-value" });
  const field = el("input", { id: "ask-value", oninput: preview, inputmode: "numeric", required: true, pattern: "-?[0-9]{1,16}", autocomplete: "off" });
  let refused = null; // why this key may not; not known yet

  /** Says what the value is now, and what the field makes of it. */
  function preview() {
    const pending = known.pending ? `, and ${number(known.pending)} of that are not stored yet` : "";
    say(present, `Its value is ${number(known.value)} now${pending}.`);
    const text = field.value.trim();
    say(becomes, WHOLE.test(text) ? `${number(known.value)} → ${number(BigInt(text))}` : "Type a whole number, without spaces or commas.");
  }

  const paragraphs = (...texts) => texts.map((text) => el("p", {}, text));

  function once(method, at, body = () => "") {
    const id = newId();
    return () => changed(() => change(method, at, body(), id));
  }

  function set() {
    field.value = String(known.value);
    const body = () => `{"value": ${WHOLE.test(field.value.trim()) ? field.value.trim() : JSON.stringify(field.value)}}`;
    preview();
    ask({
      title: `Set ${inShort(name)}`,
      parts: [present, ...paragraphs("The new value takes the place of everything that was counted before. Later increments add to it. Counts by time stay as they are."),
        el("label", { for: "ask-value" }, "New value"), field, becomes],
      action: "Set", run: once("PUT", path, body),
    });
  }

  function reset() {
    ask({
      title: `Reset ${inShort(name)}`,
      parts: [present, ...paragraphs("It becomes 0. Increments that were accepted until then do not count any more; later ones do. Counts by time stay as they are. You can undo this only by setting the value again.")],
      action: "Reset to 0", run: once("POST", `${path}/reset`),
    });
  }

  function shards() {
    const wanted = el("input", { id: "ask-shards", type: "number", min: 1, required: true, value: String(known.shards || 1) });
    ask({
      title: `Shards of ${inShort(name)}`,
      parts: [...paragraphs(`It has ${number(known.shards)} now. The value does not change. With more shards, Datastore can be written more often; with fewer, reads cost less.`),
        el("label", { for: "ask-shards" }, "Shards"), wanted],
      action: "Change", run: () => changed(() =>
        change("PUT", `${path}/shards`, JSON.stringify({ shards: Number(wanted.value), compact: Number(wanted.value) < known.shards }))),
    });
  }

  function remove() {
    ask({
      title: `Delete ${inShort(name)}`,
      parts: [present, ...paragraphs("It becomes 0 and leaves the lists, until it is counted again. Counts by time stay for as long as they are kept.")],
      action: "Delete", typed: typedFor(name), run: once("DELETE", path),
    });
  }

  return {
    node,
    async know(found) {
      known = found;
      for (const one of buttons) one.disabled = !found.exists;
      buttons[0].disabled = false; // a set makes a counter
      preview();
      refused ??= await whyNot();
      choice.hidden = Boolean(refused);
      say(told, refused || "You see what will happen before it does.");
    },
  };
}
