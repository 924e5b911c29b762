// A spark line and a trend for each counter in a list, of those that are in sight.

import { ApiError } from "./api.js";
import { change, el, number, say } from "./dom.js";
import { counts, lately } from "./periods.js";

const EVERY = 60_000;
const [WIDTH, HEIGHT] = [96, 24];

/** What can be chosen, with the periods that show it, the best first. */
export const RANGES = {
  day: { label: "24 hours", periods: [["hour", 24]] },
  week: { label: "7 days", periods: [["hour", 168], ["day", 7]] },
  month: { label: "30 days", periods: [["day", 30], ["hour", 720]] },
};

/** `range` tells which of them is chosen. */
export function sparks(range) {
  const inSight = new Set();
  let filled = 0;
  let known = 0;
  let busy = false;
  const observer = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) isIntersecting ? inSight.add(target.spark) : inSight.delete(target.spark);
    work();
  });

  /** Asks for what is not known or old, one after the other, so that a long list is no load. */
  async function work() {
    if (busy) return;
    busy = true;
    try {
      for (const one of inSight) if (one.range !== range() || performance.now() > one.until) await fill(one);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the list itself says that the service is away
    } finally {
      busy = false;
    }
  }

  async function fill(one) {
    const asked = range();
    let found = null;
    for (const [by, points] of RANGES[asked].periods) {
      const kept = await counts(one.name, lately(by, 2 * points + 1));
      if (kept) found = { list: kept.list, points };
      if (kept) break;
    }
    filled += 1;
    known += Boolean(found);
    one.range = asked;
    one.until = performance.now() + EVERY;
    draw(one, found, RANGES[asked].label);
  }

  return {
    work,
    /** Whether no counter in sight has counts by time. */
    hasNone: () => filled > 0 && !known,
    /** The cell of a counter. */
    cell(name) {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const trend = el("span", {}, "");
      const node = el("td", { class: "spark" }, line, trend);
      line.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
      line.setAttribute("aria-hidden", "true");
      line.append(...["area", "line"].map((kind) => {
        const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
        path.setAttribute("class", kind);
        return path;
      }));
      node.spark = { name, line, trend, node, range: "", until: 0 };
      observer.observe(node);
      return node;
    },
    forget(node) {
      observer.unobserve(node);
      inSight.delete(node.spark);
    },
  };
}

/** Compares complete periods: the present one, which has just begun, is drawn only. */
function draw({ line, trend, node }, known, label) {
  const { list, points } = known ?? { list: [], points: 0 };
  const shown = list.slice(-points - 1);
  const top = Math.max(1, ...shown);
  const low = Math.min(0, ...shown);
  const at = (count, index) => `${((index * WIDTH) / points).toFixed(1)} ${(HEIGHT - 1 - ((count - low) / (top - low)) * (HEIGHT - 3)).toFixed(1)}`;
  const path = known ? `M${shown.map(at).join("L")}` : "";
  line.children[0].setAttribute("d", path && `${path}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`);
  line.children[1].setAttribute("d", path);
  const sum = (some) => some.reduce((total, count) => total + count, 0);
  const [now, then] = [sum(list.slice(-points - 1, -1)), sum(list.slice(0, points))];
  say(trend, known ? change(now, then) : "–");
  node.title = known ? `${number(now)} in ${label}, ${number(then)} in the ${label} before` : "No counts by time are kept for it.";
}
