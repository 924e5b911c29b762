// Shows the page that the address names, asks it for news when something changes and every two seconds, and asks for a
// key where one is needed.

import { ApiError, authorization, key } from "./api.js";
import { compare, counter } from "./counter.js";
import { MOST_PINS, counters, hasSlash } from "./counters.js";
import { docs } from "./docs.js";
import { say } from "./dom.js";
import { jobs } from "./jobs.js";
import { deadLetters } from "./letters.js";
import { pipeline } from "./pipeline.js";

const INTERVAL = 2000;
const PATIENCE = 300; // milliseconds after which the page says that it waits
const AT_MOST = 300; // milliseconds between two updates that a stream causes
const AGAIN = 5_000;
const main = document.getElementById("main");
const state = document.getElementById("state");
const dialog = document.getElementById("key-dialog");
const field = document.getElementById("key-text");
let turn = 0;
let shown = null;
let timer = 0;
let waiting = 0;
let following = new AbortController();

function found() {
  if (location.pathname === "/docs") return ["docs", docs()];
  const [path, query] = location.hash.split("?");
  const [, page = "", name = ""] = path.split("/");
  const chosen = new URLSearchParams(query);
  if (page === "counter" && name) return ["counters", counter(decoded(name), chosen)];
  if (page === "chart" && chosen.has("name")) return ["counters", compare([...new Set(chosen.getAll("name"))].slice(0, MOST_PINS), chosen)];
  if (page === "dead-letters") return ["pipeline", deadLetters()];
  if (page === "pipeline") return ["pipeline", pipeline()];
  if (page === "jobs") return ["jobs", jobs()];
  return ["counters", counters(chosen)];
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

function show() {
  const mine = ++turn;
  clearTimeout(timer);
  const [current, view] = found();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(view.node);
  document.title = `${view.title} · Countersink`;
  const again = async () => {
    clearTimeout(timer);
    if (mine !== turn) return;
    try {
      if (!document.hidden) await view.update();
      if (mine === turn) tell("Live", false);
    } catch (error) {
      if (mine !== turn) return;
      if (!(error instanceof ApiError)) throw error;
      tell(error.message, true);
      if (error.status === 401) return ask(key.get() ? `${error.message}.` : "This service needs a key with the scope read.");
    }
    clearTimeout(timer); // of another update that was under way at the same time
    if (mine === turn) timer = setTimeout(again, INTERVAL);
  };
  view.refresh = () => {
    clearTimeout(waiting);
    waiting = setTimeout(tell, PATIENCE, "Loading…", false);
    again();
  };
  view.follow = () => {
    following.abort();
    following = new AbortController();
    if (view.stream && !document.hidden) follow(view.stream(), again, following.signal);
  };
  shown = view;
  view.follow();
  view.refresh();
}

document.addEventListener("visibilitychange", () => shown.follow());

/** Calls back when a stream of the service tells a change, until the signal says stop. Meanwhile the page also asks by itself, now and then. */
async function follow(path, changed, signal) {
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

function tell(text, bad) {
  clearTimeout(waiting);
  say(state, text);
  state.classList.toggle("bad", bad);
}

function ask(why) {
  if (why) say(document.getElementById("key-why"), why);
  if (dialog.open) return;
  field.value = ""; // a key that is in use stays hidden, and what is typed or pasted replaces it
  say(document.getElementById("key-hint"), key.get() ? "This key replaces the one that this tab uses now." : "This tab keeps the key until you close it.");
  document.getElementById("key-forget").hidden = !key.get();
  dialog.showModal();
}

function use(text) {
  key.set(text);
  dialog.close();
  show();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # says which page is shown
  main.focus();
});
document.getElementById("key-button").addEventListener("click", () => ask(""));
document.getElementById("key-cancel").addEventListener("click", () => dialog.close());
document.getElementById("key-forget").addEventListener("click", () => use(""));
document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  use(field.value.trim());
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || !hasSlash() || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  event.preventDefault();
  if (!shown.search) {
    history.pushState(null, "", "/#/");
    show();
  }
  shown.search();
});
addEventListener("hashchange", () => {
  for (const open of document.querySelectorAll("dialog[open]")) open.close(); // it is about the page before
  show();
  main.focus({ preventScroll: true });
});
show();
