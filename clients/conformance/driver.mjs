// Does with the client for Node what a scenario says. README.md has the steps.
import { fork } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client, RequestError } from "countersink";

const { url, interval = 0.2, patience, ...options } = JSON.parse(process.argv[2]);
if (options.key) {
  const keys = options.key;
  options.key = async () => {
    const key = keys.length > 1 ? keys.shift() : keys[0];
    if (key === null) throw new Error("no key");
    return key;
  };
}
const counters = new Client(url, { interval: interval * 1_000, patience: patience && patience * 1_000, ...options });

const steps = {
  incr({ name, each = 0, times = 1, by, id }) {
    const all = each ? Array.from({ length: each }, (_, number) => `${name}-${number}`) : [name];
    for (let number = 0; number < times; number++) for (const one of all) counters.incr(one, by, { id });
    return {};
  },
  flush: async ({ seconds }) => ({ done: await counters.flush(seconds * 1_000) }),
  close: async ({ seconds }) => ({ done: await counters.close(seconds * 1_000) }),
  dropped: () => ({ dropped: counters.dropped }),
  async get({ name }) {
    const { value, exact, exists } = await counters.get(name, { maxAge: 0 });
    return { value: typeof value === "bigint" ? String(value) : value, exact, exists };
  },
  get_many: async ({ names }) => ({ values: (await counters.getMany(names)).map(({ value }) => value) }),
  async list({ prefix, contains }) {
    const names = [];
    for await (const { name } of counters.list(prefix, { page: 2, contains })) names.push(name);
    return { names };
  },
  top: async ({ prefix, n }) => ({ names: (await counters.top(prefix, n)).map(({ name }) => name) }),
  async watch({ names, prefix, until }) {
    const values = [];
    for await (const { value } of counters.watch(names ?? { prefix })) {
      values.push(value);
      if (value === until) break;
    }
    return { values };
  },
  series: async ({ name, period: by }) => ({ total: (await counters.series(name, { by })).total }),
  async children({ number, name, times }) {
    const task = JSON.stringify({ name, times });
    const all = Array.from({ length: number }, () => fork(fileURLToPath(import.meta.url), [process.argv[2], task]));
    const codes = await Promise.all(all.map((child) => once(child, "exit")));
    return codes.every(([code]) => code === 0) ? {} : { error: "a child failed" };
  },
};

if (process.argv[3]) {
  steps.incr(JSON.parse(process.argv[3])); // a child: its end sends what it counted
} else {
  process.once("SIGTERM", async () => {
    await counters.flush();
    process.exit(0);
  });
  for await (const line of createInterface({ input: process.stdin })) {
    const [step, given] = JSON.parse(line);
    let answer;
    try {
      answer = await steps[step](given);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      answer = { error: error.message, status: error.status };
    }
    console.log(JSON.stringify(answer));
  }
}
