// The client for Node: counts in the background, asks the service for everything else, and follows streams.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { Sender, flawOfName, flawOfOptions, isObject } = require("./sender.js");
const transport = require("./transport.js");

const { LONGEST_TIMER, ONE_TRY, RejectedError, RequestError, Retries, UnavailableError } = transport;

const MOST_NAMES = 1_000;
const LONGEST_QUERY = 12_000; // characters of a URL; the service accepts a request line of 16,384 bytes
const SHORTEST_TRY = 1_000; // ms of one attempt at least, however short the caller's patience
const PATIENCE = 30_000; // ms for which a stream, or a list that has begun, is tried again
const READ_PATIENCE = 2_000; // ms for which a read is, since a page may wait for it
const SILENCE = 30_000; // ms after which a stream is given up. The service sends something every ten seconds
const OPTIONS = ["key", "interval", "most", "patience", "headers", "tls"];

class Client {
  #transport;
  #sender;
  #patience;
  #readPatience;

  constructor(url, options) {
    const { key, interval = 200, most = 100_000, patience, headers, tls } = known(options, "new Client(url, { key })", OPTIONS);
    for (const [name, value] of Object.entries({ interval, most, patience: patience ?? PATIENCE })) {
      if (typeof value === "number" && (value === 0 || value >= 1)) continue;
      throw new TypeError(`${name} must be 0, or a number of at least 1; times are in milliseconds`);
    }
    for (const [name, value] of Object.entries({ headers, tls })) {
      if (!isObject(value ?? {})) throw new TypeError(`${name} must be an object`);
    }
    this.#transport = new transport.Transport(url, { key, headers, tls });
    this.#sender = new Sender(this.#transport, interval, most);
    this.#patience = patience ?? PATIENCE;
    this.#readPatience = patience ?? READ_PATIENCE;
  }

  incr(name, by = 1, options = undefined) {
    this.#sender.add(name, by, options);
  }

  get dropped() {
    return this.#sender.dropped;
  }

  async flush(timeout = 30_000) {
    return this.#sender.flush(milliseconds("timeout", timeout));
  }

  async close(timeout = 2_000) {
    return this.#sender.close(milliseconds("timeout", timeout));
  }

  async get(name, options) {
    const { maxAge } = known(options, "get(name, { maxAge })", ["maxAge"]);
    return counterOf(await this.#ask(pathOf(name) + query([["max_age", seconds(maxAge)]])));
  }

  async getMany(names, options) {
    if (typeof names === "string") throw new TypeError("the names must be in an array: getMany([name, name])");
    const { maxAge } = known(options, "getMany([name, name], { maxAge })", ["maxAge"]);
    const found = [];
    const ask = async (part) => {
      const { counters } = await this.#ask(`/v1/counters${query([...part, ["max_age", seconds(maxAge)]])}`);
      found.push(...counters.map(counterOf));
    };
    let part = [];
    let length = 0;
    for (const name of names) {
      const more = encodeURIComponent(checked(name)).length + "&name=".length;
      if (part.length && (part.length === MOST_NAMES || length + more > LONGEST_QUERY)) {
        await ask(part);
        part = [];
        length = 0;
      }
      part.push(["name", name]);
      length += more;
    }
    if (part.length) await ask(part);
    return found;
  }

  async *list(prefix = "", options = undefined) {
    const { page = 100, contains } = known(options, "list(prefix, { page, contains })", ["page", "contains"]);
    string("the prefix", prefix);
    if (contains !== undefined) string("contains", contains);
    let token;
    do {
      const asked = query([["prefix", prefix], ["limit", page], ["page_token", token], ["contains", contains]]);
      const answer = await this.#ask(`/v1/counters${asked}`, token && this.#patience);
      yield* answer.counters.map(counterOf);
      token = answer.next_page_token;
    } while (token);
  }

  async top(prefix = "", n = 10) {
    const asked = query([["prefix", string("the prefix", prefix)], ["order", "value"], ["limit", n]]);
    const { counters } = await this.#ask(`/v1/counters${asked}`);
    return counters.map(counterOf);
  }

  async series(name, options) {
    const { by = "day", from, to } = known(options, 'series(name, { by: "hour" })', ["by", "from", "to"]);
    const answer = await this.#ask(`${pathOf(name)}/series${query([["by", by], ["from", instant(from)], ["to", instant(to)]])}`);
    const points = answer.points.map((point) => ({ ...point, from: new Date(point.from) }));
    const { as_of: asOf, ...rest } = answer;
    return { ...rest, from: new Date(answer.from), to: new Date(answer.to), points, asOf: new Date(asOf) };
  }

  async *watch(what, options) {
    const { signal } = known(options, "watch([name, name], { signal })", ["signal"]);
    const names = typeof what === "string" ? [what] : what;
    const prefix = () => string("the prefix", known(what, "watch({ prefix })", ["prefix"]).prefix);
    const pairs = Array.isArray(names) ? names.map((name) => ["name", checked(name)]) : [["prefix", prefix()]];
    const path = typeof what === "string" ? `${pathOf(what)}/watch` : `/v1/watch${query(pairs)}`;
    if (path.length > LONGEST_QUERY) throw new RejectedError("the list of names is too long: watch a prefix");
    let retries = new Retries();
    let last;
    let until = performance.now() + this.#patience;
    for (;;) {
      const headers = { Accept: "text/event-stream", ...(last === undefined ? {} : { "Last-Event-ID": last }) };
      try {
        for await (const event of events(this.#transport.lines({ method: "GET", path, headers }, SILENCE, signal))) {
          retries = new Retries();
          last = event.id ?? last;
          const counter = counterIn(event, this.#transport.shown);
          if (counter) yield counter;
          until = performance.now() + this.#patience;
        }
        throw new UnavailableError(`${this.#transport.shown} has ended the stream`);
      } catch (error) {
        const delay = error instanceof UnavailableError ? retries.delay(error) : Infinity;
        if (performance.now() + delay > until) throw error;
        await sleep(delay, undefined, { signal }).catch(() => signal.throwIfAborted());
      }
    }
  }

  /** Repeat the request until there is an answer, or the patience is over. */
  async #ask(path, patience = this.#readPatience) {
    const until = performance.now() + patience;
    const retries = new Retries();
    for (;;) {
      try {
        const ms = Math.min(ONE_TRY, Math.max(until - performance.now(), SHORTEST_TRY));
        return await this.#transport.attempt({ method: "GET", path, headers: {} }, ms, true);
      } catch (error) {
        if (!(error instanceof UnavailableError)) throw error;
        const delay = retries.delay(error);
        if (performance.now() + delay > until) throw error;
        await sleep(Math.min(delay, LONGEST_TIMER));
      }
    }
  }
}

/** The fields of each event. Comments and events without data are events, too. */
async function* events(lines) {
  let fields = {};
  for await (const line of lines) {
    if (!line) {
      yield fields;
      fields = {};
      continue;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (name) fields[name] = value;
  }
}

function counterIn({ event, data }, shown) {
  if (data === undefined) return null;
  const found = transport.objectOf(data) ?? transport.foreign(shown);
  if (event === "problem") throw new RejectedError(String(found.detail), { status: found.status, field: found.field ?? null });
  return counterOf(found);
}

function counterOf({ as_of: asOf, updated_at: updatedAt, ...rest }) {
  const more = updatedAt === undefined ? {} : { updatedAt: updatedAt && new Date(updatedAt) };
  return { ...rest, asOf: new Date(asOf), ...more };
}

function checked(name) {
  const flaw = flawOfName(name);
  if (flaw) throw new RejectedError(flaw, { field: "name" });
  return name;
}

function pathOf(name) {
  return `/v1/counters/${encodeURIComponent(checked(name))}`;
}

function query(pairs) {
  const there = pairs.filter(([, value]) => value !== undefined);
  return there.length ? `?${there.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}` : "";
}

/** These options of this call, which has those of these names alone. */
function known(options, call, names) {
  const flaw = flawOfOptions(options, call, names);
  if (flaw) throw new TypeError(flaw);
  return options ?? {};
}

function string(what, value) {
  if (typeof value !== "string") throw new TypeError(`${what} must be a string`);
  return value;
}

function milliseconds(what, value) {
  if (typeof value !== "number" || Number.isNaN(value)) throw new TypeError(`${what} must be a number of milliseconds`);
  return value;
}

/** The service's unit. */
function seconds(maxAge) {
  return maxAge === undefined ? undefined : (milliseconds("maxAge", maxAge) / 1_000).toFixed(3);
}

function instant(when) {
  return when === undefined ? undefined : new Date(when).toISOString();
}

module.exports = { Client, RejectedError, RequestError, UnavailableError };
