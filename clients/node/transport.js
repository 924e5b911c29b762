// Makes one attempt of a request, over kept connections, and says how long to wait before the next.
"use strict";

const http = require("node:http");
const https = require("node:https");

const AGAIN = new Set([408, 425, 429, 500, 502, 503, 504, 507]); // statuses after which the same request may succeed
const NO_PATH = "there is no such path";
const UNAUTHORIZED = 401;
const TOO_MANY = 429; // surely not accepted, and may be later
const ONE_TRY = 10_000; // ms after which an attempt is given up and repeated
const LONGEST_CONNECT = 5_000;
const LONGEST_RETRY_AFTER = 3_600_000;
const FIRST_PAUSE = 50;
const LONGEST_PAUSE = 5_000;
const MOST_IDLE = 8; // connections that are kept open for later requests
const LARGEST = 64 << 20; // bytes of an answer
const LONGEST_TIMER = 2 ** 31 - 1;
const KEY = /^[!-~]+$/;
// Numbers that JSON.parse would round. In a JSON string, a quote has a backslash before it, so this finds fields alone.
const LARGE = /"(value|applied|pending|count|total)":(-?\d{16,})(?=[,}\]])/g;

/** A request failed; the message says why. */
class RequestError extends Error {
  constructor(message, { status = null, field = null, retryAfter = 0, counters = [], maybeAccepted = false } = {}) {
    super(message);
    this.name = this.constructor.name;
    this.status = status;
    this.field = field;
    this.retryAfter = retryAfter;
    this.counters = counters;
    this.maybeAccepted = maybeAccepted;
  }
}

/** The service refuses this request and will refuse it again, or what answers is not Countersink. */
class RejectedError extends RequestError {}

/** The service did not answer in time. */
class UnavailableError extends RequestError {}

/** How long to wait until a request is sent again: longer each time, and as long as the service says. */
class Retries {
  #pause = FIRST_PAUSE;

  delay(error) {
    const delay = error.retryAfter + this.#pause * (0.5 + Math.random() / 2);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
    return delay;
  }
}

class Transport {
  constructor(url, { key, headers, tls }) {
    const { parts, socketPath } = partsOf(url);
    this._module = parts.protocol === "https:" ? https : http;
    this._tls = tls ?? {};
    this._agent = new this._module.Agent({ keepAlive: true, maxFreeSockets: MOST_IDLE, ...this._tls });
    this._where = socketPath ? { socketPath } : { hostname: parts.hostname.replace(/^\[|\]$/g, ""), port: parts.port };
    this._path = parts.pathname.replace(/\/+$/, "");
    this._headers = { "User-Agent": "countersink-node", "Content-Type": "application/json" };
    if (parts.username) {
      const secret = `${decodeURIComponent(parts.username)}:${decodeURIComponent(parts.password)}`;
      this._headers.Authorization = `Basic ${Buffer.from(secret).toString("base64")}`;
    }
    this._key = typeof key === "function" ? key : undefined;
    if (key !== undefined && !this._key) this._headers.Authorization = authorization(key);
    for (const [name, value] of Object.entries(headers ?? {})) {
      http.validateHeaderName(name);
      http.validateHeaderValue(name, value);
      this._headers[name] = value;
    }
    parts.username = parts.password = "";
    this.shown = socketPath ? url : parts.href.replace(/\/+$/, "");
  }

  close() {
    this._agent.destroy();
  }

  /**
   * Send it once, and return the JSON of the answer. Throws `UnavailableError` if it may succeed later, and
   * `RejectedError` if not. Both say whether it may have been accepted all the same. `waits` says whether somebody waits
   * for it: else it keeps no program from ending.
   */
  async attempt(unkeyed, ms, waits) {
    const request = await this._keyed(unkeyed, ms, waits);
    let unanswered = false;
    try {
      try {
        return await this._exchange(request, ms, waits, this._agent);
      } catch (error) {
        if (!error.onKept) throw error;
        unanswered = true; // the service was closing an idle connection; but the request may have arrived
        return await this._exchange(request, ms, waits, false);
      }
    } catch (error) {
      delete error.onKept;
      error.maybeAccepted ||= unanswered;
      throw error;
    }
  }

  /** Lines of an answer that need not end, on a connection of its own. Throws if nothing comes for `silence` ms. */
  async *lines(request, silence, signal) {
    const sent = this._send(await this._keyed(request, silence, true), false, signal);
    let timer;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => sent.destroy(new Error(`nothing came for ${silence / 1_000} seconds`)), silence);
    };
    try {
      alive();
      const answer = await answered(sent);
      if (answer.statusCode !== 200) this._check(answer, await bodyOf(answer));
      let rest = "";
      answer.setEncoding("utf8");
      for await (const piece of answer) {
        alive();
        const lines = (rest + piece).split("\n");
        rest = lines.pop();
        for (const line of lines) yield line.replace(/\r$/, "");
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw error instanceof RequestError ? error : this._failure(error, false);
    } finally {
      clearTimeout(timer);
      sent.destroy();
    }
  }

  /** The request with the key of now, if the key is a function. Throws `UnavailableError` if there is none in time. */
  async _keyed(request, ms, waits) {
    if (!this._key) return request;
    let timer;
    const late = (_, reject) => {
      timer = setTimeout(reject, ms, new Error(`the answer took longer than ${ms / 1_000} s`));
      if (!waits) timer.unref();
    };
    try {
      const key = await Promise.race([this._key(), new Promise(late)]);
      return { ...request, headers: { Authorization: authorization(key), ...request.headers } };
    } catch (error) {
      throw new UnavailableError(`there is no key for ${this.shown}: ${error?.message ?? error}`);
    } finally {
      clearTimeout(timer);
    }
  }

  _send(request, agent, signal) {
    const { method, path, body, headers } = request;
    const size = body === undefined ? {} : { "Content-Length": Buffer.byteLength(body) };
    const sent = this._module.request({
      ...this._where,
      ...this._tls,
      method,
      path: this._path + path,
      agent,
      signal,
      headers: { ...this._headers, ...headers, ...size },
    });
    sent.end(body);
    return sent;
  }

  async _exchange(request, ms, waits, agent) {
    const sent = this._send(request, agent);
    let connected = false;
    let late = false;
    const giveUp = (limit) => {
      late = true;
      sent.destroy(new Error(`the answer took longer than ${limit / 1_000} s`));
    };
    const after = (limit) => {
      const timer = setTimeout(giveUp, limit, limit);
      return waits ? timer : timer.unref();
    };
    const timers = [after(ms)];
    sent.once("socket", (socket) => {
      if (waits) socket.ref();
      else socket.unref();
      if (!socket.connecting) {
        connected = true;
        return;
      }
      const connecting = after(Math.min(ms, LONGEST_CONNECT));
      timers.push(connecting);
      socket.once("connect", () => {
        connected = true;
        clearTimeout(connecting);
      });
    });
    try {
      const answer = await answered(sent);
      const said = await bodyOf(answer);
      this._check(answer, said);
      return objectOf(said) ?? foreign(this.shown);
    } catch (error) {
      if (error instanceof RequestError) throw error;
      const failed = this._failure(error, connected);
      failed.onKept = sent.reusedSocket && !late;
      throw failed;
    } finally {
      timers.forEach(clearTimeout);
    }
  }

  _failure(error, maybeAccepted) {
    const code = String(error.code); // that of some errors is a number
    const said = error.message || code;
    let why = `no answer from ${this.shown}: ${said}. Is it running, and is the URL right?`;
    if (said.includes("wrong version number")) {
      why = `${this.shown} does not speak TLS: write ${this.shown.replace(/^https/, "http")}, or the port that does`;
    } else if (code.includes("CERT") || code.startsWith("UNABLE_TO_")) {
      why = `the certificate of ${this.shown} is not trusted: ${said}. Give the authority that signed it as tls.ca`;
    }
    return new UnavailableError(why, { maybeAccepted });
  }

  /** Throw the error if this is no answer 2xx. */
  _check(answer, said) {
    const status = answer.statusCode;
    if (status >= 200 && status < 300) return;
    const { detail: reason, field = null, counters } = objectOf(said) ?? {};
    let detail = String(reason ?? `${this.shown} answered ${status}, not as Countersink does: is the URL right?`);
    if (this._path && detail.startsWith(NO_PATH)) {
      detail = `${NO_PATH} at ${this.shown}: leave ${this._path} out of the URL, unless a proxy removes it`;
    }
    const named = Array.isArray(counters) ? counters.filter((one) => typeof one === "string") : [];
    const told = { status, field, counters: named, maybeAccepted: status >= 500 };
    const renews = this._key !== undefined && status === UNAUTHORIZED; // the next key may be valid
    if (!AGAIN.has(status) && !renews) throw new RejectedError(detail, told);
    told.maybeAccepted = status !== TOO_MANY && !renews;
    throw new UnavailableError(detail, { ...told, retryAfter: retryAfterOf(answer.headers) });
  }
}

function authorization(key) {
  if (typeof key !== "string" || !KEY.test(key)) throw new TypeError("the key must be printable ASCII without spaces");
  return `Bearer ${key}`;
}

function partsOf(url) {
  if (typeof url === "string" && /^unix:./.test(url)) {
    return { parts: new URL("http://localhost"), socketPath: url.slice("unix:".length) };
  }
  try {
    const parts = new URL(url);
    if (["http:", "https:"].includes(parts.protocol) && !parts.search && !parts.hash) return { parts };
  } catch {
    // the message below says more
  }
  throw new TypeError(`${JSON.stringify(url)} is not the URL of a service: write it as http://HOST:PORT`);
}

function answered(sent) {
  return new Promise((resolve, reject) => {
    sent.once("response", resolve);
    sent.on("error", reject); // also of a second one, which must not end the program
    sent.once("upgrade", (_, socket) => {
      socket.destroy();
      reject(new Error("it switches to another protocol"));
    });
  });
}

function bodyOf(answer) {
  return new Promise((resolve, reject) => {
    const pieces = [];
    let size = 0;
    answer.on("data", (piece) => {
      pieces.push(piece);
      size += piece.length;
      if (size > LARGEST) answer.destroy(new Error(`the answer has more than ${LARGEST} bytes`));
    });
    answer.on("end", () => resolve(Buffer.concat(pieces).toString()));
    answer.on("error", reject);
    answer.on("close", () => reject(new Error("the answer is not complete")));
  });
}

/** The JSON object, or null if it is none. Integers that a number can't hold are of type bigint. */
function objectOf(text) {
  try {
    const kept = text.replace(LARGE, (field, name, digits) =>
      Number.isSafeInteger(Number(digits)) ? field : `"${name}":{"large":"${digits}"}`,
    );
    const found = JSON.parse(kept, (_, value) => (typeof value?.large === "string" ? BigInt(value.large) : value));
    return typeof found === "object" && !Array.isArray(found) ? found : null;
  } catch {
    return null;
  }
}

function foreign(shown) {
  throw new RejectedError(`${shown} does not answer as Countersink does: is the URL right?`, { maybeAccepted: true });
}

/** In ms. A date is compared with that of the answer, if it has one, as clocks differ. */
function retryAfterOf(headers) {
  const text = (headers["retry-after"] ?? "").trim();
  const there = Date.parse(headers.date ?? "") || Date.now();
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - there;
  return Math.min(Math.max(ms || 0, 0), LONGEST_RETRY_AFTER);
}

module.exports = {
  LONGEST_TIMER,
  ONE_TRY,
  RejectedError,
  RequestError,
  Retries,
  TOO_MANY,
  Transport,
  UnavailableError,
  foreign,
  objectOf,
};
