// The page of the API: every operation that /openapi.json describes, by tag, each with a form that sends it.

import { authorization, json } from "./api.js";
import { ask } from "./dialog.js";
import { copied, el, say, seconds } from "./dom.js";

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

// The form.

const TOLD = ["content-type", "location", "retry-after", "next-page-token", "www-authenticate", "etag", "allow"];
const MOST_SHOWN = 20_000; // characters
let numbers = 0;

/** A form that sends an operation to this service, with the key of the tab, and shows the answer. `method` in small letters; `parameters` without references. */
function trial(document, path, method, it, parameters) {
  const fields = parameters.map((one) => field(document, one));
  const content = it.requestBody ? resolved(document, it.requestBody).content : {};
  const kind = el("select", { id: `f${++numbers}` }, ...Object.keys(content).map((type) => el("option", {}, type)));
  const body = el("textarea", { id: `f${++numbers}`, rows: "4", spellcheck: "false" });
  const curl = el("code", {});
  const send = el("button", { class: "main", type: "submit" }, "Send");
  const status = el("p", { class: "status", role: "status" });
  const headers = el("dl", { class: "rows" });
  const shown = el("code", {});
  const box = el("pre", { tabindex: "0", hidden: true, "aria-label": "Body of the answer" }, shown);
  const image = el("img", { alt: "The picture in the answer", hidden: true });
  const form = el("form", { class: "try" },
    el("div", { class: "fields" }, ...fields.map((one) => one.node)),
    ...(it.requestBody ? [
      el("div", { hidden: Object.keys(content).length < 2 }, el("label", { for: kind.id }, "Content-Type"), kind),
      el("div", {}, el("label", { for: body.id }, "Body"), body),
    ] : []),
    el("div", { class: "step" }, el("pre", { tabindex: "0", "aria-label": "The request as a command" }, curl), copied(curl, "Copy the request as a command")),
    el("div", { class: "buttons" }, send),
    status, headers, image, box);
  let underWay = null;

  function write() {
    const type = kind.value;
    const schema = content[type]?.schema;
    if (!schema) return "";
    const found = example(document, schema);
    if (type === "application/x-ndjson") return '{"counter": "page:/home"}\n{"counter": "page:/home", "delta": 2}\n';
    if (type === "application/x-www-form-urlencoded") return new URLSearchParams(found).toString();
    const text = JSON.stringify(found);
    return text === "{}" ? "" : text;
  }

  function request() {
    const values = (where) => fields.filter((one) => one.in === where).flatMap((one) => one.values().map((value) => [one.name, value]));
    const target = values("path").reduce((at, [name, value]) => at.replace(`{${name}}`, encodeURIComponent(value)), path);
    const query = values("query").map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
    const sent = Object.fromEntries(values("header"));
    const text = it.requestBody && body.value;
    if (text && kind.options.length) sent["Content-Type"] = kind.value;
    return { target: query ? `${target}?${query}` : target, headers: sent, body: text || undefined };
  }

  function show() {
    say(curl, asCurl(method, request()));
  }

  async function run() {
    const asked = request();
    underWay = new AbortController();
    say(send, "Stop");
    say(status, "Waiting for the answer…");
    headers.replaceChildren();
    say(shown, "");
    box.hidden = image.hidden = true;
    const begun = performance.now();
    try {
      const answer = await fetch(asked.target, {
        method: method.toUpperCase(), headers: { ...authorization(), ...asked.headers }, body: asked.body,
        cache: "no-store", signal: underWay.signal,
      });
      status.classList.toggle("bad", !answer.ok);
      say(status, `${answer.status} ${answer.statusText} after ${seconds((performance.now() - begun) / 1000)}`);
      headers.replaceChildren(...TOLD.filter((name) => answer.headers.has(name))
        .flatMap((name) => [el("dt", {}, el("code", {}, name)), el("dd", {}, el("code", {}, answer.headers.get(name)))]));
      if ((answer.headers.get("content-type") ?? "").startsWith("image/")) await draw(answer);
      else await read(answer);
    } catch (error) {
      if (error.name !== "AbortError") {
        status.classList.add("bad");
        say(status, "The service does not answer.");
      }
    }
    underWay = null;
    say(send, "Send");
  }

  /** Shows text as it comes: a stream does not end before somebody stops it. */
  async function read(answer) {
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (reader) {
      const { done, value } = await reader.read();
      if (done) break;
      text = (text + value).slice(0, MOST_SHOWN);
      box.hidden = false;
      say(shown, text);
      if (text.length === MOST_SHOWN) {
        underWay.abort();
        break;
      }
    }
    say(shown, laidOut(text));
  }

  async function draw(answer) {
    const reader = new FileReader();
    reader.onload = () => {
      image.src = reader.result;
      image.hidden = false;
    };
    reader.readAsDataURL(await answer.blob());
  }

  body.value = write();
  kind.addEventListener("change", () => (body.value = write()));
  form.addEventListener("input", show);
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (underWay) return underWay.abort();
    if (!it.tags.includes("manage") || method === "get") return run();
    ask({
      title: "Send this request?",
      parts: [el("pre", {}, el("code", {}, `${method.toUpperCase()} ${request().target}`)),
        el("p", { class: "hint" }, "It changes the counters or jobs of this service, and cannot be undone.")],
      action: "Send it", run: () => void run(),
    });
  });
  show();
  return form;
}

function field(document, parameter) {
  const schema = resolved(document, parameter.schema);
  const id = `f${++numbers}`;
  const many = schema.type === "array";
  const input = schema.enum
    ? el("select", { id }, ...(parameter.required ? [] : [""]).concat(schema.enum).map((one) => el("option", {}, one)))
    : el(many ? "textarea" : "input", { id, rows: many && "2", required: parameter.required, autocomplete: "off", spellcheck: "false" });
  const given = parameter.example ?? (parameter.required ? example(document, schema) : "");
  if (!schema.enum) input.value = [given].flat().join("\n");
  const label = el("label", { for: id }, parameter.name, el("small", {}, many ? " one on each line" : parameter.required ? " required" : ""));
  return {
    node: el("div", {}, label, input),
    name: parameter.name,
    in: parameter.in,
    values: () => (many ? input.value.split("\n") : [input.value]).filter(Boolean),
  };
}

/** A command for a shell. The key is not in it. */
function asCurl(method, { target, headers, body }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const said = { ...(authorization().Authorization && { Authorization: "" }), ...headers };
  const parts = Object.entries(said).map(([name, value]) =>
    name === "Authorization" ? '-H "Authorization: Bearer $COUNTERSINK_KEY"' : `-H ${quoted(`${name}: ${value}`)}`);
  if (body) parts.push(`-d ${quoted(body)}`.replace(/^-d (?=.*\n)/s, "--data-binary "));
  return [`curl -X ${method.toUpperCase()} ${quoted(location.origin + target)}`, ...parts].join(" \\\n  ");
}

/** JSON with a line for each part. Numbers that are too large for JavaScript stay as they were sent. */
function laidOut(text) {
  if (/\d{16}/.test(text)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** What a node of the document is, or what its $ref stands for. */
function resolved(document, node) {
  while (node.$ref) node = node.$ref.slice(2).split("/").reduce((at, step) => at[step], document);
  return node;
}

/** What a schema describes. */
function example(document, schema) {
  const it = resolved(document, schema);
  const ready = it.examples?.[0] ?? it.const ?? it.default ?? it.enum?.[0];
  if (ready !== undefined) return ready;
  if (it.properties) return whole(document, it);
  const first = it.anyOf ?? it.oneOf;
  if (first) return example(document, first[0]);
  const type = [it.type].flat()[0];
  if (type === "array") return [example(document, it.items)];
  if (type === "object") return it.additionalProperties ? { "page:/home": example(document, it.additionalProperties) } : {};
  if (type === "integer" || type === "number") return Math.max(it.minimum ?? 1, 1);
  return type === "boolean" ? false : "example";
}

/** An object with what it must have, as its first alternative describes it. */
function whole(document, it) {
  const parts = [it, ...(it.anyOf ?? it.oneOf ?? []).slice(0, 1).map((one) => resolved(document, one))];
  const names = new Set(parts.flatMap((part) => part.required ?? []));
  const properties = Object.assign({}, ...parts.map((part) => part.properties ?? {}));
  return Object.fromEntries([...names].map((name) => [name, example(document, properties[name] ?? {})]));
}
