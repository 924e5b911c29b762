// Reads metrics in the text format of Prometheus.

export const START = "start_time_seconds";
const SAMPLE = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;

export class Metrics {
  #samples = new Map();

  constructor(exposition) {
    for (const line of exposition.split("\n")) {
      const found = SAMPLE.exec(line);
      if (!found) continue;
      const labels = Object.fromEntries([...(found[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
      const samples = this.#samples.get(found[1]) ?? [];
      samples.push([labels, Number(found[3])]);
      this.#samples.set(found[1], samples);
    }
  }

  /** All samples of a metric, as labels and value. */
  all(name) {
    return this.#samples.get(`countersink_${name}`) ?? [];
  }

  /** The kind of broker, which the process may not tell. */
  get broker() {
    return this.all(START)[0]?.[0].broker;
  }

  /** The sum of all samples, or undefined if there is none. */
  sum(name) {
    const found = this.all(name);
    return found.length ? found.reduce((sum, [, value]) => sum + value, 0) : undefined;
  }
}
