// The page of dead letters: why each was not counted and what it would count, and buttons to replay or drop them.

import { ApiError, json, send } from "./api.js";
import { ask, explained } from "./dialog.js";
import { el, number, say, some } from "./dom.js";

const PATH = "/v1/dead-letters";
const PAGE = `${PATH}?limit=100`;
const STATES = {
  dead: "Not counted",
  unreadable: "Unreadable",
  applied: "Counted already",
  dropped: "Dropped already",
};

const signed = (value) => (value < 0 ? `−${number(-value)}` : `+${number(value)}`);

function age(published) {
  const minutes = (Date.now() - Date.parse(published)) / 60_000;
  if (Number.isNaN(minutes)) return published;
  if (minutes < 1) return "less than a minute ago";
  const [value, unit] = minutes < 60 ? [minutes, "minute"] : minutes < 2880 ? [minutes / 60, "hour"] : [minutes / 1440, "day"];
  return new Intl.RelativeTimeFormat("en").format(-Math.floor(value), unit);
}

function content(letter) {
  const counters = Object.entries(letter.counters).map(([name, delta]) => el("li", {}, `${name} ${signed(delta)}`));
  if (letter.more_counters) counters.push(el("li", {}, `and ${some(letter.more_counters, "counter")} more`));
  if (counters.length) return el("ul", { class: "plain" }, ...counters);
  return letter.start ? el("pre", {}, letter.start) : "Nothing that can be read";
}

export function deadLetters() {
  let token = null;
  let loaded = false;
  let busy = false;
  const rows = el("ul", { class: "letters" });
  const count = el("p", { class: "lead" }, "\u00a0");
  const missing = el("p", { class: "card", hidden: true });
  const result = el("p", { class: "card", role: "status", tabindex: "-1", hidden: true });
  const all = el("button", { type: "button", class: "main", onclick: () => confirmAll() }, "Replay all");
  const refresh = el("button", { type: "button", onclick: () => guarded(load) }, "Refresh");
  const more = el("button", { type: "button", onclick: () => guarded(next) }, "Show more");
  const body = el("div", { hidden: true }, el("div", { class: "tools" }, all, refresh), result, rows, el("p", { class: "more" }, more));
  const node = el("div", {},
    el("p", { class: "back" }, el("a", { href: "#/pipeline" }, "Pipeline")),
    el("h1", {}, "Dead letters"), count, missing, body);

  function row(letter) {
    const act = (label, why, does, run) =>
      el("button", { type: "button", "aria-label": `${label} ${letter.id}`, onclick: () => confirm(`${label} this dead letter?`, why, does, run) }, label);
    const holds = letter.state === "dead"
      ? `It holds ${some(letter.increments, "increment")}. ` : "";
    const replay = act("Replay", `${holds}Increments that were not counted before are counted now, exactly once, even if somebody else replays the letter, too. If the reason remains, it stays a dead letter.`,
      "Replay", () => replayed({ ids: [letter.id] }));
    const drop = act("Drop", `${holds}Nothing can count it any more, and totals leave it out at once. You cannot undo this.`,
      "Drop for good", () => dropped(letter.id));
    return el("li", { class: "card" },
      el("p", { class: "reason" }, el("strong", {}, STATES[letter.state]), ` · ${letter.flaw ?? (letter.reason || "no reason is given")}`),
      content(letter),
      el("p", { class: "hint" }, el("time", { title: letter.published }, `Published ${age(letter.published)}`),
        ` · ${some(letter.increments, "increment")}${letter.size === null ? "" : ` · ${some(letter.size, "byte")}`} · `, el("code", {}, letter.id)),
      el("div", { class: "buttons" }, ...(letter.state === "unreadable" ? [drop] : [replay, drop])));
  }

  const confirm = (title, why, action, run) => ask({ title, parts: [el("p", {}, why)], action, run: () => guarded(run) });

  const confirmAll = () => confirm("Replay all dead letters?",
    "Increments that were not counted before are counted now, exactly once, even from letters that this page does not show. Letters whose reason remains stay, and so do those that are unreadable or too old to judge.",
    "Replay all", () => replayed({ all: true }));

  async function replayed(asked) {
    const total = { counted: 0, already: 0, dropped: 0, left: 0, letters_left: 0 };
    let answer;
    do {
      answer = await send(`${PATH}/replay`, asked);
      for (const name of ["counted", "already", "dropped"]) total[name] += answer[name];
      tell(`${some(total.counted, "increment")} counted so far.`);
    } while (answer.more && answer.counted + answer.already + answer.dropped > 0);
    const said = [`${some(total.counted, "increment")} counted`];
    if (total.already) said.push(`${number(total.already)} counted before`);
    if (total.dropped) said.push(`${number(total.dropped)} dropped before`);
    if (answer.letters_left) said.push(`${some(answer.letters_left, "dead letter")} left${answer.letters_left > 1 ? ", the first" : ""} because: ${answer.reasons[0].why}`);
    if (answer.not_found.length) said.push("somebody else has replayed, dropped or held it");
    if (answer.more) said.push("there are more, but none of the first ones can be counted: replay others one by one");
    await load();
    tell(`${said.join("; ")}.`);
  }

  async function dropped(id) {
    const answer = await send(`${PATH}/drop`, { ids: [id] });
    const given = answer.dropped.reduce((sum, one) => sum + one.increments, 0);
    await load();
    tell(answer.dropped.length ? `Dropped, with ${some(given, "increment")}.` : "Somebody else has replayed, dropped or held it.");
  }

  function tell(what) {
    say(result, what);
    result.hidden = !what;
  }

  async function guarded(run) {
    if (busy) return;
    busy = true;
    tell("");
    for (const button of node.querySelectorAll("button")) button.disabled = true;
    try {
      await run();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      tell(error.message);
    } finally {
      busy = false;
      for (const button of node.querySelectorAll("button")) button.disabled = false;
      if (document.activeElement === document.body) result.focus(); // the button that was used may be gone
    }
  }

  async function load() {
    const page = await json(PAGE);
    loaded = true;
    body.hidden = false;
    rows.replaceChildren();
    show(page);
  }

  async function next() {
    show(await json(`${PAGE}&page_token=${encodeURIComponent(token)}`));
  }

  function show(page) {
    rows.append(...page.dead_letters.map(row));
    token = page.next_page_token;
    more.hidden = token === null;
    const shown = rows.children.length;
    all.hidden = shown === 0 && token === null;
    const found = shown || token ? some(shown, "dead letter") : "No dead letters";
    say(count, token !== null ? `${found} shown, and there may be more.`
      : page.complete ? `${found}.` : `${found} found. Pub/Sub does not say how many there are.`);
  }

  // It looks once: on Pub/Sub, each look hides letters from others for a moment.
  async function update() {
    if (loaded || busy) return;
    try {
      await load();
    } catch (error) {
      if (!(error instanceof ApiError) || ![403, 404].includes(error.status)) throw error;
      loaded = true;
      say(missing, error.status === 404 ? "This listener does not show dead letters. If the service runs with --admin-port, open the console there." : `${explained(error)}.`);
      missing.hidden = false;
    }
  }

  return { title: "Dead letters", node, update };
}
