// Calls back when a counter changes, as the service tells it. Where it can't, the page asks by itself now and then.

import { authorization } from "./api.js";

const AT_MOST = 300; // milliseconds between two calls
const AGAIN = 5_000;

/** Follows a stream of the service until the signal says stop. */
export async function follow(path, changed, signal) {
  while (!signal.aborted) {
    try {
      const answer = await fetch(path, { headers: authorization(), cache: "no-store", signal });
      if (answer.ok) await read(answer.body.getReader(), changed);
    } catch {
      // The page has gone on, or the service is away.
    }
    await pause(AGAIN);
  }
}

async function read(reader, changed) {
  const decoder = new TextDecoder();
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    if (decoder.decode(value, { stream: true }).includes("data:")) {
      changed();
      await pause(AT_MOST);
    }
  }
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
