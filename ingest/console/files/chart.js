// Numbers over time: how fast they change, and charts of them, drawn by uPlot in the colours of the page: lines of the last
// minutes, or bars.

import { clock, el, moments, say } from "./dom.js";

const MOST = 300;
const COLOURS = ["--accent", "--second", "--third", "--fourth", "--fifth", "--sixth"];
// A time on the scale has no fractions of a second, and a count no fractions: two marks would say the same.
const TIMES = [1, 5, 10, 15, 30, ...[1, 5, 10, 15, 30].map((one) => one * 60), ...[1, 2, 3, 4, 6, 8, 12].map((one) => one * 3600), ...[1, 2, 5, 10, 15, 30].map((one) => one * 86_400)];
const WHOLE = Array.from({ length: 19 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();

/** A title with the present numbers, and a line for each name. `kind`: of its numbers. */
export function panel(title, kind, names, height = 130) {
  const box = el("div", { class: "chart", role: "img", "aria-label": `${title}, as a chart` });
  box.style.height = `${height}px`;
  const at = el("span", { class: "at" });
  const numbers = names.map(() => el("span", { class: "now" }, "–"));
  const keys = names.map((name, place) => el("span", { class: `key${place}` }, name && `${name} `, numbers[place]));
  const node = el("section", { class: "card panel" }, el("h2", {}, title), el("p", { class: "keys" }, at, ...keys), box);
  const times = [];
  const values = names.map(() => []);
  const show = plotIn(box, height, {
    lines: (colour) => COLOURS.slice(0, names.length).map((one, place) => ({
      stroke: colour(one), width: 1.5, points: { show: false }, ...(place ? {} : { fill: colour("--wash") }),
    })),
    kind,
    pick: tell,
  });

  function tell(index) {
    const picked = index ?? times.length - 1;
    say(at, index == null ? "" : clock(new Date(times[picked] * 1000)));
    names.forEach((_, place) => say(numbers[place], kind.write(values[place][picked] ?? null)));
  }

  return {
    node,
    /** Adds a number for each name, null where it is not known. */
    add(...now) {
      times.push(Date.now() / 1000);
      now.forEach((value, place) => values[place].push(value ?? null));
      if (times.length > MOST) [times, ...values].forEach((list) => list.shift());
      show(times, values);
    },
  };
}

/** Counts of periods. `pick` is called with the place of the period under the pointer, or null. */
export function history(height, kind, pick) {
  const box = el("div", { class: "chart", role: "img", "aria-label": "Counts by time, as a chart" });
  box.style.height = `${height}px`;
  const paths = uPlot.paths.bars({ size: [0.8, 40], align: 1 });
  let length = 0; // of a bar, so that there is room for the last one
  let form = "";
  let show = null;
  const lines = (number, withBars) => (colour) => COLOURS.slice(0, number).map((one, place) => withBars && !place
    ? { stroke: colour(one), fill: colour(one), width: 0, points: { show: false }, paths }
    : { stroke: colour(one), width: 2, points: { show: false } });
  return {
    node: box,
    /** The first list of values as bars, if so wanted, and others as lines. `utc`: of days as UTC has them. */
    show(times, lists, withBars, utc) {
      length = !withBars || times.length < 2 ? 0 : times[1] - times[0];
      if (form !== (form = `${lists.length} ${withBars} ${utc}`)) {
        box.replaceChildren();
        show = plotIn(box, height, { lines: lines(lists.length, withBars), kind, pick, after: () => length, utc });
      }
      show(times, lists);
    },
  };
}

function plotIn(box, height, { lines, kind, pick, after = () => 0, utc = false }) {
  let plot = null;
  const colour = (name) => () => getComputedStyle(box).getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const options = () => ({
    width: box.clientWidth,
    height,
    legend: { show: false },
    tzDate: (at) => (utc ? uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000)),
    cursor: { y: false, points: { show: false }, drag: { setScale: false, x: false, y: false } },
    padding: [8, 36, 0, 0], // half of "Wed 18:00" is right of the last bar
    scales: {
      x: { range: (_, first, last) => [first, last === first ? first + 1 : last + after()] },
      y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] },
    },
    axes: [
      { ...axis, size: 28, gap: 9, space: 80, incrs: TIMES.slice(utc ? -6 : 0), grid: { show: false }, values: (_, at, __, ___, step) => moments(at, step, utc) },
      { ...axis, size: 68, space: 32, ...(kind.whole && { incrs: WHOLE }), values: (_, at) => at.map(kind.mark) },
    ],
    series: [{}, ...lines(colour)],
    hooks: { setCursor: [(it) => pick(it.cursor.idx ?? null)] },
  });
  new ResizeObserver(() => {
    if (plot && box.clientWidth) plot.setSize({ width: box.clientWidth, height });
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot?.redraw());
  return (times, values) => {
    if (plot) plot.setData([times, ...values]);
    else plot = new uPlot(options(), [times, ...values], box);
    pick(plot.cursor.idx ?? null);
  };
}

// Rates.

const SPAN = 10_000;
const LEAST = 900; // milliseconds: over less than that, a rate is chance

/** Knows how fast numbers have changed in the last seconds. */
export class Rates {
  #seen = new Map();

  /**
   * Takes the numbers by name as they are now, forgets all others, and returns changes per second by name. What came
   * before another generation is forgotten: a counter that was set did not count.
   */
  add(values, now = performance.now()) {
    const next = new Map();
    const rates = new Map();
    for (const [name, value, generation] of values) {
      const points = (this.#seen.get(name) ?? []).filter(([at, , its]) => now - at <= SPAN && its === generation);
      points.push([now, Number(value), generation]);
      next.set(name, points);
      const [first, last] = [points[0], points[points.length - 1]];
      rates.set(name, last[0] - first[0] < LEAST ? null : ((last[1] - first[1]) * 1000) / (last[0] - first[0]));
    }
    this.#seen = next;
    return rates;
  }
}
