// What an administrator does to one counter: set, reset, delete, and the number of its shards.

import { change, counterPath, newId } from "./api.js";
import { ask, whyNot } from "./dialog.js";
import { el, inShort, number, say, typedFor } from "./dom.js";

const WHOLE = /^-?\d{1,16}$/;

/** `changed` runs a change of the counter, and shows what has become of it. */
export function administer(name, changed) {
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
