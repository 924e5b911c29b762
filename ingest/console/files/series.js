// Counts by time of one counter, as bars: by minute, hour or day, as far as the service keeps them.

import { ApiError, counterPath, json } from "./api.js";
import { bars } from "./chart.js";
import { COUNTS, el, keep, number, period, say } from "./dom.js";

const KINDS = {
  minute: { length: 60_000, points: 60, label: "Last hour" },
  hour: { length: 3_600_000, points: 48, label: "Last two days" },
  day: { length: 86_400_000, points: 90, label: "Last 90 days" },
};
const EVERY = 10_000;

/** `wanted`: the length of a bar that the address names. */
export function series(name, wanted) {
  const choice = el("div", { class: "choice", role: "group", "aria-label": "Length of a bar" });
  const told = el("p", { class: "hint" }, "\u00a0");
  const plot = bars(220, COUNTS, (index) => tell(index));
  let drawn = { times: [], counts: [], whole: "\u00a0" };
  const kept = el("div", { hidden: true }, choice, plot.node, told);
  const none = el("p", { class: "hint" }, "\u00a0");
  const node = el("section", { class: "card" }, el("h2", {}, "Counts by time"), kept, none);
  let kinds = null;
  let chosen = "";
  let next = 0;

  async function update() {
    if (performance.now() < next) return;
    next = performance.now() + EVERY;
    if (kinds === null) await find();
    if (chosen) await draw();
  }

  async function find() {
    const found = [];
    for (const by of Object.keys(KINDS)) {
      try {
        await read(by);
        found.push(by);
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 404) throw error;
      }
    }
    kinds = found;
    kept.hidden = !found.length;
    none.hidden = Boolean(found.length);
    say(none, "None are kept. The setting COUNTERSINK_WINDOWS says which counters have them, and for how long.");
    choice.replaceChildren(...found.map((by) => el("button", { type: "button", "data-by": by, onclick: () => choose(by) }, KINDS[by].label)));
    if (found.length) mark([wanted, "hour"].find((by) => found.includes(by)) ?? found[0]);
  }

  function choose(by) {
    mark(by);
    keep({ by });
    draw().catch(() => {});
  }

  function mark(by) {
    chosen = by;
    for (const one of choice.children) one.setAttribute("aria-pressed", String(one.dataset.by === by));
  }

  async function draw() {
    const by = chosen;
    const found = await read(by);
    if (by !== chosen) return;
    const { length } = KINDS[by];
    const counts = new Map(found.points.map((one) => [Date.parse(one.from), Number(one.count)]));
    const times = [];
    for (let at = Date.parse(found.from); at < Date.parse(found.to); at += length) times.push(at);
    const whole = `${number(found.total)} in all${found.exact ? "" : "; some of it may be missing"}. Times are those of this device.`;
    drawn = { times, counts: times.map((at) => counts.get(at) ?? 0), whole, length };
    plot.show(times.map((at) => at / 1000), drawn.counts);
  }

  /** Says what the bar under the pointer counts, or all of them together. */
  function tell(index) {
    const at = drawn.times[index ?? -1];
    say(told, at === undefined ? drawn.whole : `${number(drawn.counts[index])} from ${period(new Date(at), drawn.length)}.`);
  }

  function read(by) {
    const { length, points } = KINDS[by];
    const from = new Date(Math.floor(Date.now() / length) * length - (points - 1) * length);
    return json(`${counterPath(name)}/series?by=${by}&from=${from.toISOString()}`);
  }

  return { node, update };
}
