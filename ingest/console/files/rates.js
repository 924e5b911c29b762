// Knows how fast numbers have changed in the last seconds.

const SPAN = 10_000;
const LEAST = 900; // milliseconds: over less than that, a rate is chance

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
