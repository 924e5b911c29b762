// Numbers over time, drawn by uPlot in the colours of the page: a line of the last minutes, or bars.

import { el } from "./dom.js";

const MOST = 300;
const HEIGHT = 220;

export function chart(title) {
  const box = el("div", { class: "chart" });
  const told = el("p", { class: "hint" }, "The line begins with the second reading.");
  const node = el("section", { class: "card" }, el("h2", {}, title), box, told);
  const times = [];
  const values = [];
  const show = plotIn(box, (colour) => ({ stroke: colour("--accent"), fill: colour("--wash"), width: 2 }));

  return {
    node,
    add(value) {
      if (value === null) return;
      times.push(Date.now() / 1000);
      values.push(value);
      if (times.length > MOST) {
        times.shift();
        values.shift();
      }
      if (times.length < 2) return;
      told.textContent = `Now ${value.toFixed(1)}, at most ${Math.max(...values).toFixed(1)} per second.`;
      show(times, values);
    },
  };
}

export function bars() {
  const box = el("div", { class: "chart" });
  const paths = uPlot.paths.bars({ size: [0.8, 40], align: 1 });
  let length = 0; // of a bar, so that there is room for the last one
  const show = plotIn(box, (colour) => ({ stroke: colour("--accent"), fill: colour("--accent"), width: 0, paths }), () => length);
  return {
    node: box,
    show(times, values) {
      length = times.length < 2 ? 0 : times[1] - times[0];
      show(times, values);
    },
  };
}

/** Returns a function that shows times and values. `line` says how they are drawn, and `after` how much time follows. */
function plotIn(box, line, after = () => 0) {
  let plot = null;
  const colour = (name) => () => getComputedStyle(box).getPropertyValue(name).trim();
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = () => ({
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false },
    scales: {
      x: { range: (_, first, last) => [first, last + after()] },
      y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] },
    },
    axes: [axis, { ...axis, size: 64 }],
    series: [{}, { points: { show: false }, ...line(colour) }],
  });
  new ResizeObserver(() => {
    if (plot && box.clientWidth) plot.setSize({ width: box.clientWidth, height: HEIGHT });
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot?.redraw());
  return (times, values) => {
    if (plot) plot.setData([times, values]);
    else plot = new uPlot(options(), [times, values], box);
  };
}
