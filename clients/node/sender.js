// Sums increments by name, divides the sums into requests that keep their keys, and sends each until it is accepted.
"use strict";

const { randomBytes } = require("node:crypto");
const { uptime } = require("node:os");
const { LONGEST_TIMER, ONE_TRY, RejectedError, RequestError, Retries, TOO_MANY, foreign } = require("./transport.js");

const MAX_NAME_BYTES = 400;
const MAX_ID_BYTES = 1_000;
const MAX_DELTA = Number.MAX_SAFE_INTEGER;
const MOST_ITEMS = 1_000; // names, or increments with ids, in a request
const LARGEST = 256 * 1024; // bytes of a body, about. Proxies often refuse a megabyte
const SHORTEST_PAUSE = 100; // ms until a batch that failed is tried again, while somebody waits or much is held
const MOMENT = 20; // ms until it is looked at again whether something may be sent, while somebody waits
const OLDEST = 7 * 86_400; // seconds after which a batch in doubt is given up: the service forgets its key after 8 days
const SPLIT = new Set([400, 403, 413, 422, TOO_MANY]); // statuses that may be about some names of a batch
const MOST_REFUSALS = 20; // in a row, after which it seems not to be about some names
const AT_EXIT = 2_000;

// Clients that hold something. They are not collected meanwhile.
const running = new Set();
process.on("beforeExit", () => running.forEach((sender) => sender.endProgram()));

/** Sums under a key of their own, or increments with ids. Both count once, however often they are sent. */
class Batch {
  constructor(entries, keyed, like = { doubtful: false, made: uptime(), turn: 0 }) {
    this.entries = entries; // objects with counter, delta, calls, and an id if they are keyed
    this.keyed = keyed;
    this.doubtful = like.doubtful; // it may have been accepted: from then on its key and its bytes stay
    this.made = like.made;
    this.turn = like.turn; // when it was taken; parts have that of the whole
    this.tries = 0;
    this.retries = new Retries();
    this.pause = NONE;
  }

  get calls() {
    return this.entries.reduce((sum, entry) => sum + entry.calls, 0);
  }

  get request() {
    if (this._request) return this._request;
    const headers = this.keyed ? {} : { "Idempotency-Key": randomBytes(16).toString("hex") };
    const body = this.keyed
      ? JSON.stringify(this.entries.map(({ counter, delta, id }) => ({ counter, delta, id })))
      : `{"counters":{${this.entries.map(({ counter, delta }) => `${JSON.stringify(counter)}:${delta}`)}}}`;
    this._request = { method: "POST", path: "/v1/increments", body, headers };
    return this._request;
  }

  /** The same in two: what has these names, and the others; or every second one. Empty if that is not safe. */
  parts(refused) {
    if (this.entries.length < 2 || (this.doubtful && !this.keyed)) return [];
    const named = new Set(this.entries.map((entry) => entry.counter).filter((name) => refused.includes(name)));
    const first = (entry, number) => (named.size ? named.has(entry.counter) : number % 2 === 0);
    const found = [this.entries.filter(first), this.entries.filter((entry, number) => !first(entry, number))];
    return found.every((part) => part.length) ? found.map((part) => new Batch(part, this.keyed, this)) : [];
  }

  /** How many calls are in what the service did not accept, and why. */
  rejected(answer, shown) {
    const { accepted, rejected = [], rejected_count: count = 0 } = answer;
    if (!Number.isInteger(accepted) || !Array.isArray(rejected)) foreign(shown);
    const rest = new Map(this.entries.entries());
    let calls = 0;
    for (const flaw of rejected) {
      const number = flaw.index ?? [...rest.keys()].find((one) => rest.get(one).counter === flaw.counter);
      calls += rest.get(number)?.calls ?? 0;
      rest.delete(number);
    }
    // The answer names the first 100. The others are most likely refused for their deltas, which a key may limit.
    const likely = [...rest.values()].sort((a, b) => (a.delta >= 0) - (b.delta >= 0) || Math.abs(b.delta) - Math.abs(a.delta));
    for (const entry of likely.slice(0, Math.max(count - rejected.length, 0))) calls += entry.calls;
    return { calls, reason: String(rejected[0]?.reason) };
  }
}

const NONE = { shortest: 0, full: 0 };

function pauseOf(retries, error) {
  const now = performance.now();
  const delay = retries.delay(error);
  return { shortest: now + Math.max(error.retryAfter, Math.min(delay, SHORTEST_PAUSE)), full: now + delay };
}

class Sender {
  constructor(transport, interval, most) {
    this._transport = transport;
    this._interval = interval;
    this._most = most;
    this.dropped = 0;
    this._told = new Set(); // kinds of reasons that a warning has named
    this._sums = new Map(); // by name: the delta, and the number of calls
    this._items = new Map(); // increments with ids
    this._outgoing = []; // a batch stays here until it is settled, also while it is sent. Those that failed come last
    this._flushes = new Set();
    this._turn = 0; // how often everything was taken that was counted
    this._retries = new Retries();
    this._pause = NONE;
    this._refusals = 0; // batches in a row that were refused when they were tried for the first time
    this._timer = null;
    this._works = false;
    this._deadline = Infinity;
    this._closing = null;
  }

  /** Take an increment. It never waits and never throws. */
  add(counter, by, options) {
    if (this._closing) return this._drop(1, "the client is closed");
    const wrong = flawOfOptions(options, "incr(name, by, { id })", ["id"]);
    if (wrong) return this._drop(1, wrong);
    const id = options?.id ?? undefined;
    const delta = typeof by === "bigint" && Number.isSafeInteger(Number(by)) ? Number(by) : by;
    if (!Number.isSafeInteger(delta)) {
      return this._drop(1, `the delta must be an integer between -${MAX_DELTA} and ${MAX_DELTA}`);
    }
    const there = id === undefined ? this._sums.get(counter) : undefined;
    if (there) {
      there.delta = sum(there.delta, delta);
      there.calls += 1;
      return undefined;
    }
    const flaw = flawOfName(counter) ?? (id === undefined ? null : flawOfText("id", id, MAX_ID_BYTES));
    if (flaw) return this._drop(1, flaw);
    const key = id === undefined ? counter : JSON.stringify([counter, delta, id]);
    const item = id === undefined ? undefined : this._items.get(key);
    if (item) {
      item.calls += 1;
      return undefined;
    }
    if (this._held >= this._most && this._over(this._pause)) this._take();
    if (this._held >= this._most) {
      return this._drop(1, `${this._most} names and ids that are not sent yet are held already`);
    }
    if (id === undefined) this._sums.set(key, { counter, delta, calls: 1 });
    else this._items.set(key, { counter, delta, id, calls: 1 });
    running.add(this);
    const becomesHalfFull = this._isHalfFull && 2 * (this._held - 1) <= this._most;
    if (!this._works && (!this._timer || becomesHalfFull)) this._later(becomesHalfFull ? 0 : this._interval);
    return undefined;
  }

  /** Wait until everything counted before is accepted or dropped. Resolves to false if that took too long. */
  flush(ms) {
    return new Promise((resolve) => {
      // This timer, and no other, keeps the program from ending.
      const timer = setTimeout(() => this._flushed(flush, false), Math.min(Math.max(ms, 0), LONGEST_TIMER));
      const flush = { turn: null, resolve, timer };
      this._flushes.add(flush);
      if (!this._works) this._later(0);
    });
  }

  /** Send the rest, for so long, and drop what is left then. Resolves to false if something was left. */
  close(ms) {
    this._closing ??= this._end(ms, "the client was closed").finally(() => this._transport.close());
    return this._closing;
  }

  /** The program has nothing else to do. What it counts meanwhile is sent when it has nothing to do again. */
  async endProgram() {
    this._deadline = performance.now() + AT_EXIT;
    if (!(await this.flush(AT_EXIT))) this._dropRest("the program ended");
    this._deadline = Infinity;
  }

  async _end(ms, what) {
    this._deadline = performance.now() + ms;
    const done = await this.flush(ms);
    return !this._dropRest(what) && done;
  }

  /** Returns how many increments it drops. */
  _dropRest(what) {
    const rest = [...this._outgoing.flatMap((batch) => batch.entries), ...this._sums.values(), ...this._items.values()];
    this._outgoing = [];
    this._sums.clear();
    this._items.clear();
    running.delete(this);
    const calls = rest.reduce((all, entry) => all + entry.calls, 0);
    if (calls) this._drop(calls, `${what} before ${this._transport.shown} accepted them`);
    this._settle();
    return calls;
  }

  get _held() {
    return this._sums.size + this._items.size;
  }

  get _isHalfFull() {
    return 2 * this._held > this._most;
  }

  get _hurries() {
    return this._flushes.size > 0;
  }

  _over(pause) {
    return performance.now() >= (this._hurries ? pause.shortest : pause.full);
  }

  /** When a batch that waits may be tried again. */
  get _retry() {
    return Math.max(this._pause.full, this._outgoing.reduce((first, batch) => Math.min(first, batch.pause.full), Infinity));
  }

  _later(ms) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._round(), Math.min(ms, LONGEST_TIMER)).unref();
  }

  /** Take what was counted, and send it. Another one follows while something is left. */
  async _round() {
    this._timer = null;
    this._works = true;
    try {
      if (this._over(this._pause) || !this._held) this._take();
      let batch;
      while (performance.now() < this._deadline && (batch = this._next())) {
        const settled = await this._send(batch);
        if (!settled && batch.tries > 1) break; // as others of those that failed may do
      }
      this._settle();
    } finally {
      this._works = false;
      const waiting = this._outgoing.length > 0;
      if (!waiting && !this._held) running.delete(this);
      if (this._hurries) this._later(waiting || this._held ? MOMENT : 0);
      else if (this._isHalfFull) this._later(SHORTEST_PAUSE);
      else if (waiting) this._later(Math.max(Math.min(this._interval, this._retry - performance.now()), SHORTEST_PAUSE));
      else if (this._held) this._later(this._interval);
    }
  }

  /** Put the sums into batches, as many as there is room for. */
  _take() {
    let room = this._most - this._outgoing.reduce((all, batch) => all + batch.entries.length, 0);
    const taken = (all) => {
      const found = [];
      for (const [key, entry] of all) {
        if (room-- <= 0) break;
        found.push(entry);
        all.delete(key);
      }
      return found;
    };
    const rest = [];
    const sums = taken(this._sums).map((entry) => withinLimits(entry, rest));
    const items = taken(this._items);
    const found = [...batches(sums, false, this._turn), ...batches(items, true, this._turn)];
    this._outgoing = [...found, ...this._outgoing];
    for (const entry of rest) this._sums.set(entry.counter, entry);
    if (this._held) return;
    for (const flush of this._flushes) flush.turn ??= this._turn;
    this._turn += 1;
  }

  _next() {
    return this._over(this._pause) ? this._outgoing.find((batch) => this._over(batch.pause)) : undefined;
  }

  /** Tell those who flush that all of theirs is settled. */
  _settle() {
    const oldest = this._outgoing.reduce((least, batch) => Math.min(least, batch.turn), this._turn);
    for (const flush of this._flushes) if (flush.turn !== null && flush.turn < oldest) this._flushed(flush, true);
  }

  _flushed(flush, done) {
    clearTimeout(flush.timer);
    this._flushes.delete(flush);
    flush.resolve(done);
  }

  /** One attempt. Returns whether the batch is settled. */
  async _send(batch) {
    if (batch.doubtful && uptime() - batch.made > OLDEST) {
      return this._dropBatch(batch, "for a week they have had no clear answer");
    }
    batch.tries += 1;
    const rest = this._deadline - performance.now();
    const ms = Math.min(ONE_TRY, Math.max(this._outgoing.length > 1 ? rest / 2 : rest, 50));
    try {
      const { calls, reason } = batch.rejected(await this._transport.attempt(batch.request, ms, false), this._transport.shown);
      if (!this._remove(batch)) return true; // it was dropped meanwhile
      this._retries = new Retries();
      this._pause = NONE;
      this._refusals = 0;
      if (calls) this._drop(calls, reason, "rejected");
      return true;
    } catch (error) {
      if (!this._outgoing.includes(batch)) return true;
      const failed = error instanceof RequestError ? error : new RejectedError(String(error), { maybeAccepted: true });
      const refused = failed instanceof RejectedError && failed.status >= 400 && failed.status < 500;
      if (refused || failed.status === TOO_MANY) return this._refused(batch, failed);
      batch.doubtful ||= failed.maybeAccepted || failed instanceof RejectedError;
      this._wait(batch, failed);
      this._pause = pauseOf(this._retries, failed);
      return false;
    }
  }

  /** The service will not take all of it, perhaps a part. Returns whether the batch is settled. */
  _refused(batch, error) {
    batch.doubtful ||= error.maybeAccepted;
    const tooMany = error.status === TOO_MANY;
    if (batch.tries === 1 && !error.counters.length) this._refusals += 1;
    const allOfIt = this._refusals > MOST_REFUSALS;
    const parts = SPLIT.has(error.status) ? batch.parts(error.counters) : [];
    const waiting = this._outgoing.reduce((all, one) => all + one.entries.length, 0);
    let settled = false;
    if (parts.length) {
      this._remove(batch);
      this._outgoing.unshift(...parts);
      if (allOfIt) parts.forEach((part) => this._wait(part, error));
    } else if (!tooMany) settled = this._dropBatch(batch, error.message, `refused with ${error.status}`);
    else if (2 * waiting > this._most) {
      settled = this._dropBatch(batch, `too many increments wait that the service does not take: ${error.message}`, "refused with 429");
    } else this._wait(batch, error);
    if (allOfIt && tooMany && batch.tries === 1) this._pause = pauseOf(new Retries(), error);
    return settled;
  }

  /** Let it wait behind the others. */
  _wait(batch, error) {
    batch.tries = Math.max(batch.tries, 1);
    batch.pause = pauseOf(batch.retries, error);
    this._remove(batch);
    this._outgoing.push(batch);
  }

  _remove(batch) {
    const there = this._outgoing.indexOf(batch);
    if (there >= 0) this._outgoing.splice(there, 1);
    return there >= 0;
  }

  _dropBatch(batch, reason, kind) {
    this._remove(batch);
    this._drop(batch.calls, reason, kind);
    return true;
  }

  /** These increments do not count. A warning says so, once for each kind of reason. */
  _drop(calls, reason, kind = reason.replace(/\d+$/, "")) {
    this.dropped += calls;
    if (this._told.has(kind)) return;
    this._told.add(kind);
    const text = `countersink dropped ${calls} increment${calls === 1 ? "" : "s"}: ${reason}. Later, only \`dropped\` of the client counts them`;
    process.emitWarning(text, "CountersinkWarning");
  }
}

function sum(a, b) {
  const both = typeof a === "number" ? a + b : NaN;
  return Number.isSafeInteger(both) ? both : BigInt(a) + BigInt(b);
}

/** What one request may have of this sum. What is left comes into `rest`, with its share of the calls. */
function withinLimits(entry, rest) {
  const { counter, delta, calls } = entry;
  if (Number.isSafeInteger(Number(delta))) return { counter, delta: Number(delta), calls };
  const part = delta > 0n ? MAX_DELTA : -MAX_DELTA;
  const share = Math.min(Math.max(Number((BigInt(calls) * BigInt(part)) / delta), 1), calls);
  rest.push({ counter, delta: delta - BigInt(part), calls: calls - share });
  return { counter, delta: part, calls: share };
}

function* batches(entries, keyed, turn) {
  let part = [];
  let size = 0;
  const batch = () => Object.assign(new Batch(part, keyed), { turn });
  for (const entry of entries) {
    const more = 3 * (entry.counter.length + (entry.id?.length ?? 0)) + 60; // a unit of UTF-16 has at most 3 bytes
    if (part.length === MOST_ITEMS || (part.length && size + more > LARGEST)) {
      yield batch();
      part = [];
      size = 0;
    }
    part.push(entry);
    size += more;
  }
  if (part.length) yield batch();
}

function flawOfText(what, text, most) {
  if (typeof text !== "string") return `the ${what} must be a string`;
  if (/\p{Surrogate}/u.test(text)) return `the ${what} must be valid Unicode: it holds a lone surrogate`;
  const size = Buffer.byteLength(text);
  return size >= 1 && size <= most ? null : `the ${what} must be 1 to ${most} bytes of UTF-8, is ${size}`;
}

/** Why this can't be the name of a counter; null if it can. */
function flawOfName(name) {
  const flaw = flawOfText("counter's name", name, MAX_NAME_BYTES);
  if (flaw) return flaw;
  if (/\p{Control}/u.test(name)) return "the counter's name must not hold control characters";
  if (/^(\.|\.\.|__.*__)$/su.test(name)) return "the counter's name must not be '.', '..' or of the form '__…__'";
  return null;
}

function isObject(value) {
  return Object.prototype.toString.call(value) === "[object Object]"; // no array, Map, Date, Headers, AbortSignal, ...
}

/** Why these can't be the options of this call, which has those of these names alone; null if they can. */
function flawOfOptions(options, call, names) {
  if (options === undefined || options === null) return null;
  if (!isObject(options)) return `the options must be an object: ${call}`;
  const other = Object.keys(options).find((name) => !names.includes(name));
  return other === undefined ? null : `there is no option ${other}, only ${names.join(", ")}`;
}

module.exports = { Sender, flawOfName, flawOfOptions, isObject };
