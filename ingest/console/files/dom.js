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

/** The same, of a number that never breaks: it gets smaller where it would not fit on one line. */
export function fit(node, text) {
  say(node, text);
  node.style.setProperty("--long", text.length);
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const power = new Intl.NumberFormat("en", { notation: "scientific", maximumSignificantDigits: 3 });

export const number = (value) => whole.format(value);

const brief = (value) => (Math.abs(value) < 100 ? few : Math.abs(value) < 1e6 ? whole : Math.abs(value) < 1e15 ? short : power).format(value);

export const rate = (value) => (value === null ? "–" : `${brief(value)}/s`);

export const seconds = (value) =>
  value === null ? "–" : value && value < 1 ? `${brief(value * 1000)} ms` : `${few.format(value)} s`;

/** A number on the scale of a chart: short, and different from its neighbours'. */
const mark = (value) => (Math.abs(value) < 1e15 ? short : power).format(value);

/** The kinds of numbers that charts show: how texts write one, how a scale does, and whether there are only whole ones. */
export const COUNTS = { write: (value) => (value == null ? "–" : number(value)), mark, whole: true };
export const RATES = { write: rate, mark: (value) => `${mark(value)}/s` };
export const TIMES = { write: seconds, mark: (value) => (value && Math.abs(value) < 1 ? `${mark(value * 1000)} ms` : `${mark(value)} s`) };

const inEnglish = (options) => {
  const format = new Intl.DateTimeFormat("en-GB", options);
  return (when) => format.format(when);
};
export const clock = inEnglish({ timeStyle: "medium" });
const minutes = inEnglish({ timeStyle: "short" });
const day = inEnglish({ day: "numeric", month: "short" });
const weekday = inEnglish({ weekday: "short" });

/** The times on the scale of a chart, in seconds since 1970, whose marks are `step` seconds apart. */
export function moments(times, step) {
  const days = times[times.length - 1] - times[0] >= 86_400; // the same time comes twice
  return times.map((at) => {
    const when = new Date(at * 1000);
    if (step < 60) return clock(when);
    if (step >= 86_400 || !(when.getHours() || when.getMinutes())) return day(when);
    return days ? `${weekday(when)} ${minutes(when)}` : minutes(when);
  });
}

/** When a period began, for people. `length`: of the period, in milliseconds. */
export const period = (when, length) => (length < 86_400_000 ? `${day(when)}, ${minutes(when)}` : day(when));

const LONG = 60;

/** A name that fits into a sentence. */
export function inShort(name) {
  const signs = [...name];
  return signs.length > LONG ? `${signs.slice(0, 40).join("")}…${signs.slice(-15).join("")}` : name;
}

/** What has to be typed before something happens to this name: the name, unless that is hard to type. */
export const typedFor = (name) => (name.length > LONG ? "yes" : name);

/** The title of a page about a name. A long one can be unfolded. */
export function heading(name) {
  const title = el("h1", {}, name);
  return name.length > LONG ? el("details", { class: "long" }, el("summary", {}, title)) : title;
}

/** Keeps what was chosen on a page in its address: for a reload, for the way back, and to send it to others. */
export function keep(chosen) {
  const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${query && `?${query}`}`);
}

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
