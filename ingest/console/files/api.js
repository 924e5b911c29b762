// Sends requests to this service with the key of the tab, and says in words what went wrong.

const KEY = "countersink-key";
const LONGEST_WAIT = 10_000;
const LONGEST_CHANGE = 60_000;

export class ApiError extends Error {
  constructor(status, message, field = "") {
    super(message);
    this.status = status;
    this.field = field;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

// Totals can be larger than a JavaScript number is exact.
const exact = (_, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
    ? BigInt(context.source)
    : value;

export const authorization = () => (key.get() ? { Authorization: `Bearer ${key.get()}` } : {});

async function answerOf(path, options, read, longest = LONGEST_WAIT) {
  const headers = { ...options.headers, ...authorization() };
  let answer, body;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", signal: AbortSignal.timeout(longest) });
    body = await (answer.ok ? read(answer) : answer.text());
  } catch {
    throw new ApiError(0, "The service does not answer.");
  }
  if (answer.ok) return [body, answer];
  let problem = {};
  try {
    problem = JSON.parse(body);
  } catch {
    // A proxy may answer with something else than JSON.
  }
  throw new ApiError(answer.status, problem.detail ?? `The service answered ${answer.status}.`, problem.field);
}

export const text = async (path) => (await answerOf(path, {}, (answer) => answer.text()))[0];

export const json = async (path) => JSON.parse(await text(path), exact);

/** A random id, so that what is sent again happens once. */
export const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");

/** Sends a change. The same id sent again changes nothing more. `body` is text, since totals may be large. */
export async function change(method, path, body = "", id = "", longest = LONGEST_WAIT) {
  const headers = { "Content-Type": "application/json", ...(id ? { "Idempotency-Key": id } : {}) };
  const options = { method, headers, ...(body ? { body } : {}) };
  return JSON.parse((await answerOf(path, options, (answer) => answer.text(), longest))[0] || "null", exact);
}

/** The same, of an object, with longer to wait. */
export const send = (path, asked) => change("POST", path, JSON.stringify(asked), "", LONGEST_CHANGE);

/** All pages of an export, as one blob. The browser may keep it on disk. */
export async function download(path) {
  const parts = [];
  let token = "";
  do {
    const [part, answer] = await answerOf(token ? `${path}?page_token=${encodeURIComponent(token)}` : path, {}, (one) => one.blob());
    parts.push(part);
    token = answer.headers.get("Next-Page-Token") ?? "";
  } while (token);
  return new Blob(parts, { type: "application/x-ndjson" });
}

export const counterPath = (name) => `/v1/counters/${encodeURIComponent(name)}`;
