// Makes elements, and writes numbers for people.

const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** The text with signs that change the direction of writing shown as \u202e: a name with one would look like another. */
export const visible = (text) => String(text).replace(DIRECTIONS, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.map((child) => (typeof child === "string" ? visible(child) : child)));
  return node;
}

/** Changes the text only if it differs, so that a selection survives. */
export function say(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const number = (value) => whole.format(value);

const brief = (value) => (Math.abs(value) < 100 ? few : whole).format(value);

export const rate = (value) => (value === null ? "–" : `${brief(value)}/s`);

export const seconds = (value) =>
  value === null ? "–" : value && value < 1 ? `${brief(value * 1000)} ms` : `${few.format(value)} s`;

const inEnglish = (options) => {
  const format = new Intl.DateTimeFormat("en-GB", options);
  return (when) => format.format(when);
};
export const clock = inEnglish({ timeStyle: "medium" });
const minutes = inEnglish({ timeStyle: "short" });
const day = inEnglish({ day: "numeric", month: "short" });

/** A time for the scale of a chart, whose marks are `step` seconds apart. `at`: seconds since 1970. */
export function moment(at, step) {
  const when = new Date(at * 1000);
  if (step < 60) return clock(when);
  return step < 86_400 && (when.getHours() || when.getMinutes()) ? minutes(when) : day(when);
}

/** When a period began, for people. `length`: of the period, in milliseconds. */
export const period = (when, length) => (length < 86_400_000 ? `${day(when)}, ${minutes(when)}` : day(when));

/** A term and its value in a list of facts; returns the element and the node of the value. */
export function fact(label, hint = "") {
  const value = el("span", {}, "–");
  const dd = el("dd", {}, value);
  if (hint) dd.append(el("small", {}, hint));
  return [el("div", {}, el("dt", {}, label), dd), value];
}

/** A button that copies what a node says. */
export function copied(node, label) {
  const button = el("button", { type: "button", "aria-label": label }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(node.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    } catch {
      getSelection().selectAllChildren(node); // browsers give the clipboard to pages over TLS or of this machine only
    }
  });
  return button;
}
