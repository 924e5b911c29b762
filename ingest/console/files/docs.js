// The page of the API: every operation that /openapi.json describes, by tag.

import { json } from "./api.js";
import { el } from "./dom.js";
import { resolved, trial } from "./try.js";

const METHODS = ["get", "post", "put", "delete"];

export function docs() {
  const body = el("div", {});
  const node = el("div", {},
    el("h1", {}, "HTTP API"),
    el("p", { class: "lead" }, "What this service answers, from ", el("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    body);
  let done = false;

  async function update() {
    if (done) return;
    const document = await json("/openapi.json");
    done = true;
    body.replaceChildren(...document.tags.map((tag) => section(document, tag)));
  }

  return { title: "HTTP API", node, update };
}

function section(document, tag) {
  const found = Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]?.tags.includes(tag.name)).map((method) => operation(document, path, method, item)));
  return el("section", { class: "card" }, el("h2", {}, ...marked(tag.description)), ...found);
}

function operation(document, path, method, item) {
  const it = item[method];
  const parameters = [...(item.parameters ?? []), ...(it.parameters ?? [])].map((one) => resolved(document, one));
  const scopes = (it.security ?? []).flatMap((one) => one.key ?? []);
  const form = el("details", { class: "trial" }, el("summary", {}, "Try it"));
  form.addEventListener("toggle", () => form.append(trial(document, path, method, it, parameters)), { once: true });
  return el("details", { id: it.operationId },
    el("summary", {}, el("code", {}, el("b", { class: method }, method.toUpperCase()), ` ${path}`), el("span", {}, ...marked(it.summary))),
    el("p", { class: "hint" }, scopes.length ? `Where there are keys: a key with the scope ${scopes.join(" or ")}.` : "No key is needed."),
    form,
    ...(parameters.length ? [part("Parameters", parameters.map((one) => [`${one.name} (${one.in})`, one.description]))] : []),
    ...(it.requestBody ? [bodies(document, it.requestBody)] : []),
    part("Answers", Object.entries(it.responses).map(([status, one]) => [status, resolved(document, one).description])));
}

function part(title, rows) {
  const list = el("dl", { class: "rows" }, ...rows.flatMap(([name, text]) => [el("dt", {}, el("code", {}, name)), el("dd", {}, ...marked(text))]));
  return el("div", {}, el("h3", {}, title), list);
}

function bodies(document, body) {
  const schemas = Object.entries(resolved(document, body).content).map(([type, { schema }]) => [type, resolved(document, schema)]);
  return el("div", {}, el("h3", {}, "Body"), ...schemas.map(([type, { description = "", ...schema }]) => el("div", {},
    el("p", { class: "hint" }, type, ...(description && [". ", ...marked(description)])),
    el("pre", { tabindex: "0" }, el("code", {}, JSON.stringify(schema, null, 2))))));
}

/** Text in which `this` is code. */
const marked = (text) => text.split("`").map((one, index) => (index % 2 ? el("code", {}, one) : one));
