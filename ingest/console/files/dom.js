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

const words = new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 3 });

export const number = (value) => whole.format(value);

/** So many of something: a number, or one that is written already. */
export const some = (count, one, many = `${one}s`) => `${typeof count === "string" ? count : number(count)} ${String(count) === "1" ? one : many}`;

/** A number whose digits one has to count, in words; else nothing. */
export const inWords = (value) => (Math.abs(Number(value)) >= 1e7 ? `About ${words.format(value)}. ` : "");

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

const DAY = 86_400_000;
const utcDay = inEnglish({ day: "numeric", month: "short", timeZone: "UTC" });

/** Whose times those of periods of this length are: days are counted in UTC. */
export function zone(length) {
  if (length < DAY) return `Times are yours (${Intl.DateTimeFormat().resolvedOptions().timeZone}).`;
  const begins = minutes(new Date(Math.floor(Date.now() / DAY) * DAY));
  return `Days are those of UTC${new Date().getTimezoneOffset() ? `, and begin at ${begins} of your time` : ", as yours are"}.`;
}

/** The times on the scale of a chart, in seconds since 1970, whose marks are `step` seconds apart. `utc`: days of UTC. */
export function moments(times, step, utc) {
  if (utc) return times.map((at) => utcDay(new Date(at * 1000)));
  const days = times[times.length - 1] - times[0] >= DAY / 1000; // the same time comes twice
  return times.map((at) => {
    const when = new Date(at * 1000);
    if (step < 60) return clock(when);
    if (step >= DAY / 1000 || !(when.getHours() || when.getMinutes())) return day(when);
    return days ? `${weekday(when)} ${minutes(when)}` : minutes(when);
  });
}

/** When a period began, for people. `length`: of the period, in milliseconds. */
export const period = (when, length) => (length < DAY ? `${day(when)}, ${minutes(when)}` : utcDay(when));

const LONG = 60;

/** A name that fits into a sentence: its beginning and its end, which often tell long names apart. */
export function inShort(name, most = LONG) {
  const signs = [...name];
  return signs.length > most ? `${signs.slice(0, most * 0.66).join("")}…${signs.slice(-most * 0.25).join("")}` : name;
}

/** A link to the page of a counter. */
export const nameLink = (name) => el("a", { href: `#/counter/${encodeURIComponent(name)}`, title: name }, inShort(name, 90));

/** How much more or less this is than before, in short. */
export function change(now, then) {
  if (!then) return now ? "new" : "";
  const percent = (100 * (now - then)) / Math.abs(then);
  const size = Math.abs(percent) < 10 ? few.format(Math.abs(percent)) : whole.format(Math.abs(percent));
  return size === "0" ? "=" : `${percent > 0 ? "↑" : "↓"} ${Math.abs(percent) < 1000 ? `${size} %` : `${brief(now / then)} ×`}`;
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
  const [page, known] = location.hash.split("?");
  const names = new URLSearchParams(known).getAll("name").map((name) => ["name", name]); // the counters of a chart stay
  const query = new URLSearchParams([...names, ...chosen.filter(([, value]) => value)]).toString();
  history.replaceState(null, "", `${page || "#/"}${query && `?${query}`}`);
}

/** A term and its value in a list of facts; returns the element and the node of the value. */
export function fact(label, hint = "") {
  const value = el("span", {}, "–");
  const dd = el("dd", {}, value);
  if (hint) dd.append(el("small", {}, hint));
  return [el("div", {}, el("dt", {}, label), dd), value];
}

/** Lets the browser keep a file. */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** The same, of a table. A text that a spreadsheet would take for a formula gets an apostrophe. */
export function saveCsv(name, rows) {
  const field = (value) => `"${String(value).replace(/^[=+\-@\t\r](?!\d+$)/, "'$&").replaceAll('"', '""')}"`;
  save(new Blob([rows.map((row) => `${row.map(field).join()}\r\n`).join("")], { type: "text/csv" }), name);
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
