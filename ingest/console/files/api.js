// Sends requests to this service with the key of the tab, and says in words what went wrong.

const KEY = "countersink-key";
const LONGEST_WAIT = 10_000;

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
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

export async function text(path) {
  let answer, body;
  try {
    answer = await fetch(path, { headers: authorization(), cache: "no-store", signal: AbortSignal.timeout(LONGEST_WAIT) });
    body = await answer.text();
  } catch {
    throw new ApiError(0, "The service does not answer.");
  }
  if (answer.ok) return body;
  let detail = `The service answered ${answer.status}.`;
  try {
    detail = JSON.parse(body).detail ?? detail;
  } catch {
    // A proxy may answer with something else than JSON.
  }
  throw new ApiError(answer.status, detail);
}

export const json = async (path) => JSON.parse(await text(path), exact);

export const counterPath = (name) => `/v1/counters/${encodeURIComponent(name)}`;
