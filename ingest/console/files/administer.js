// What an administrator does to one counter: set, reset, delete, and the number of its shards.

import { change, counterPath, newId } from "./api.js";
import { ask } from "./dialog.js";
import { el, number } from "./dom.js";

const WHOLE = /^-?\d{1,16}$/;

export function administer(name, done) {
  const path = counterPath(name);
  let known = null;
  const button = (label, open) => el("button", { type: "button", disabled: true, onclick: open }, label);
  const buttons = [button("Set…", set), button("Reset…", reset), button("Shards…", shards), button("Delete…", remove)];
  const node = el("section", { class: "card" }, el("h2", {}, "Change this counter"),
    el("div", { class: "choice" }, ...buttons),
    el("p", { class: "hint" }, "You see what will happen before it does. It takes a key with the scope admin, if the service has keys."));

  function now() {
    const pending = known.pending ? `, of which ${number(known.pending)} are not stored yet` : "";
    return `Its value is ${number(known.value)} now${pending}.`;
  }

  const say = (...texts) => texts.map((text) => el("p", {}, text));

  function once(method, at, body = () => "") {
    const id = newId();
    return async () => {
      await change(method, at, body(), id);
      await done();
    };
  }

  function set() {
    const field = el("input", { id: "ask-value", inputmode: "numeric", required: true, pattern: "-?[0-9]{1,16}", value: String(known.value), autocomplete: "off" });
    const body = () => `{"value": ${WHOLE.test(field.value.trim()) ? field.value.trim() : JSON.stringify(field.value)}}`;
    ask({
      title: `Set ${name}`,
      parts: [...say(now(), "The new value takes the place of everything that was counted before. What is counted later adds to it. Counts by time stay as they are."),
        el("label", { for: "ask-value" }, "New value"), field],
      action: "Set", run: once("PUT", path, body),
    });
  }

  function reset() {
    ask({
      title: `Reset ${name}`,
      parts: say(now(), "It becomes 0. Increments that were accepted until then do not count any more; later ones do. Counts by time stay as they are. You can undo this only by setting the value again."),
      action: "Reset to 0", run: once("POST", `${path}/reset`),
    });
  }

  function shards() {
    const field = el("input", { id: "ask-shards", type: "number", min: 1, required: true, value: String(known.shards || 1) });
    ask({
      title: `Shards of ${name}`,
      parts: [...say(`It has ${number(known.shards)} now. The value does not change. With more shards, Datastore can be written more often; with fewer, reads cost less.`),
        el("label", { for: "ask-shards" }, "Shards"), field],
      action: "Change", run: async () => {
        await change("PUT", `${path}/shards`, JSON.stringify({ shards: Number(field.value), compact: Number(field.value) < known.shards }));
        await done();
      },
    });
  }

  function remove() {
    ask({
      title: `Delete ${name}`,
      parts: say(now(), "It becomes 0 and leaves the lists, until it is counted again. Counts by time stay for as long as they are kept."),
      action: "Delete", typed: name, run: once("DELETE", path),
    });
  }

  return {
    node,
    know(found) {
      known = found;
      for (const one of buttons) one.disabled = !found.exists;
      buttons[0].disabled = false; // a set makes a counter
    },
  };
}
