// The page of several counters in one chart. The address names them, so it can be sent to others.

import { el } from "./dom.js";
import { series } from "./series.js";

export function compare(names, chosen) {
  const byTime = series(names, chosen);
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/" }, "All counters")),
    el("h1", {}, names.length === 1 ? "One counter" : `${names.length} counters in one chart`),
    el("p", { class: "lead" }, "Pins in the list choose them. The address of this page keeps them, and the dates."),
    byTime.node);
  return { title: "Chart", node, update: byTime.update };
}
