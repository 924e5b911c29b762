export interface Options {
  /** The key that the service wants, or a function that returns it. It is called before each attempt. */
  key?: string | (() => string | Promise<string>);
  /** Milliseconds for which increments gather; 200 by default. */
  interval?: number;
  /** Names and ids that the client holds at most, besides as many that it is sending; 100,000 by default. */
  most?: number;
  /**
   * Milliseconds for which reads and streams are tried again. By default 2,000 for reads, since a page may wait for
   * them, and 30,000 for streams and for a list that has begun.
   */
  patience?: number;
  /** Headers of all requests. */
  headers?: Record<string, string>;
  /** Options of `tls.connect`, such as `ca`. */
  tls?: Record<string, unknown>;
}

/** A counter as the service reads it. `value` = `applied` + `pending`. Only a number beyond 2^53 - 1 is a bigint. */
export interface Counter {
  name: string;
  value: number | bigint;
  applied: number | bigint;
  pending: number | bigint;
  /** Whether `value` includes every increment that was accepted before the read. */
  exact: boolean;
  asOf: Date;
  shards: number;
  exists: boolean;
  /** It changes when the counter is set, reset or deleted, and not when it counts. */
  generation?: number;
  /** When an increment was last applied, if the service says so; null if none was. */
  updatedAt?: Date | null;
}

export interface Series {
  name: string;
  by: string;
  from: Date;
  to: Date;
  /** Periods in which nothing was counted are left out. */
  points: { from: Date; count: number | bigint }[];
  total: number | bigint;
  exact: boolean;
  asOf: Date;
}

/**
 * Counts in the background. What only the client holds is lost if its process is killed. Options that do not exist are a
 * `TypeError`; `incr` drops the increment instead.
 */
export class Client {
  /** Throws a `TypeError` if the URL or an option is wrong. */
  constructor(url: string, options?: Options);

  /** Add to a counter, in the background. With an `id`, it counts once. It never waits and never throws. */
  incr(name: string, by?: number | bigint, options?: { id?: string }): void;

  /** How many increments were dropped: they do not count, or nobody knows. */
  readonly dropped: number;

  /** Wait until everything counted before is accepted or dropped. Resolves to false after `timeout` ms (30,000). */
  flush(timeout?: number): Promise<boolean>;

  /** Send the rest, for `timeout` ms (2,000), and end. Resolves to false if something was left: it is dropped. */
  close(timeout?: number): Promise<boolean>;

  /** Read the counter. A cached part of the answer is at most `maxAge` ms old. */
  get(name: string, options?: { maxAge?: number }): Promise<Counter>;

  /** Read several counters; the answers are in the same order. */
  getMany(names: Iterable<string> & object, options?: { maxAge?: number }): Promise<Counter[]>;

  /**
   * All counters under the prefix, in the order of their names. With `contains`, those whose names have that part, if
   * the service keeps its data in a SQLite file.
   */
  list(prefix?: string, options?: { page?: number; contains?: string }): AsyncGenerator<Counter, void, undefined>;

  /** The n largest counters under the prefix, the largest first. */
  top(prefix?: string, n?: number): Promise<Counter[]>;

  /** What was counted in each period, between `from` and `to` if you say so. */
  series(
    name: string,
    options?: { by?: "minute" | "hour" | "day"; from?: Date | string; to?: Date | string },
  ): Promise<Series>;

  /** Counters as they change: their values now, and each change, for ever. It connects again if the stream is cut. */
  watch(
    what: string | string[] | { prefix: string },
    options?: { signal?: AbortSignal },
  ): AsyncGenerator<Counter, void, undefined>;
}

/** A request failed; the message says why. */
export class RequestError extends Error {
  /** The status of the last answer, if there was one. */
  status: number | null;
  /** The field that is wrong in the request, if the service named one. */
  field: string | null;
}

/** The service refuses this request and will refuse it again, or what answers is not Countersink. */
export class RejectedError extends RequestError {}

/** The service did not answer in time. */
export class UnavailableError extends RequestError {}
