// Asks before something is changed: says what will happen, does it, and says what went wrong.

import { ApiError, json } from "./api.js";
import { el, say, visible } from "./dom.js";

const ELSEWHERE = "This listener takes no changes. If the service runs with --admin-port, open the console there.";

/** `parts` say what will happen. `typed` is what has to be typed first; `run` does it, and may throw an `ApiError`. */
export function ask({ title, parts, action, typed = "", run }) {
  const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const cancel = el("button", { type: "button", class: "quiet" }, "Cancel");
  const submit = el("button", { type: "submit", class: "main" }, action);
  const form = el("form", {}, el("h2", { id: "ask-title" }, title), ...parts);
  if (typed) {
    const field = el("input", { id: "ask-typed", autocomplete: "off", spellcheck: "false" });
    form.append(el("label", { for: "ask-typed" }, "To continue, type ", el("code", {}, typed)), field);
    field.addEventListener("input", () => (submit.disabled = field.value !== typed && field.value !== visible(typed)));
    submit.disabled = true;
  }
  form.append(wrong, el("div", { class: "buttons" }, cancel, submit));
  const dialog = el("dialog", { "aria-labelledby": "ask-title" }, form);
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    wrong.hidden = true;
    try {
      await run();
      dialog.close();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      say(wrong, explained(error));
      wrong.hidden = false;
      submit.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  form.querySelector("input")?.select(); // what is typed replaces the old value
}

/** Why this key may not administer here; empty if it may. */
export async function whyNot() {
  try {
    await json("/v1/jobs"); // of what an administrator asks, this needs no name
    return "";
  } catch (error) {
    if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
    return `${explained(error)}${/[.]$/.test(error.message) ? "" : "."}`;
  }
}

export const explained = (error) =>
  error.status === 404 && error.message.startsWith("there is no such path") ? ELSEWHERE : `${error.message[0].toUpperCase()}${error.message.slice(1)}`;
