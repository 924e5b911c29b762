// Makes an example of what a schema of the OpenAPI document describes.

/** What a node of the document is, or what its $ref stands for. */
export function resolved(document, node) {
  while (node.$ref) node = node.$ref.slice(2).split("/").reduce((at, step) => at[step], document);
  return node;
}

export function example(document, schema) {
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
