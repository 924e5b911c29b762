// Makes elements, and writes numbers for people.

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Changes the text only if it differs, so that a selection survives. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const number = (value) => whole.format(value);

export const rate = (value) =>
  value === null ? "–" : `${Math.abs(value) < 100 ? few.format(value) : whole.format(value)}/s`;

export const seconds = (value) =>
  value < 1 ? `${whole.format(value * 1000)} ms` : `${few.format(value)} s`;

/** A term and its value in a list of facts; returns the element and the node of the value. */
export function fact(label, hint = "") {
  const value = el("span", {}, "–");
  const dd = el("dd", {}, value);
  if (hint) dd.append(el("small", {}, hint));
  return [el("div", {}, el("dt", {}, label), dd), value];
}
