// What is shown while nothing has been counted: commands to copy, with the address of this service.

import { key } from "./api.js";
import { copied, el } from "./dom.js";

export function start() {
  const header = key.get() ? ' -H "Authorization: Bearer $COUNTERSINK_KEY"' : "";
  const url = location.origin;
  return el("div", {},
    el("h1", {}, "Nothing has been counted yet"),
    el("p", { class: "lead" }, "Copy a command into a terminal. The counter appears here as soon as it counts."),
    step("Count one", `curl -X POST${header} ${url}/v1/counters/visits`),
    step("Count once, even if you send it twice", `curl -X POST${header} ${url}/v1/counters/visits -d '{"delta": 5, "id": "order-1041"}'`),
    step("Count many at once", `curl -X POST${header} ${url}/v1/increments -d '{"counters": {"visits": 3, "page:home": 2}}'`),
    step("Read the total", `curl${header} ${url}/v1/counters/visits`));
}

function step(title, command) {
  const code = el("code", {}, command);
  return el("section", { class: "card" }, el("h2", {}, title), el("div", { class: "step" }, el("pre", {}, code), copied(code, `Copy: ${title}`)));
}
