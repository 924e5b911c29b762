// A line of numbers over the last minutes, drawn by uPlot in the colours of the page.

import { el } from "./dom.js";

const MOST = 300;
const HEIGHT = 220;

export function chart(title) {
  const box = el("div", { class: "chart" });
  const told = el("p", { class: "hint" }, "The line begins with the second reading.");
  const node = el("section", { class: "card" }, el("h2", {}, title), box, told);
  const times = [];
  const values = [];
  let plot = null;

  const colour = (name) => () => getComputedStyle(node).getPropertyValue(name).trim();
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = () => ({
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false },
    scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(1, high * 1.1)] } },
    axes: [axis, { ...axis, size: 64 }],
    series: [{}, { stroke: colour("--accent"), fill: colour("--wash"), width: 2, points: { show: false } }],
  });

  new ResizeObserver(() => {
    if (plot && box.clientWidth) plot.setSize({ width: box.clientWidth, height: HEIGHT });
  }).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot?.redraw());

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
      if (plot) plot.setData([times, values]);
      else plot = new uPlot(options(), [times, values], box);
    },
  };
}
