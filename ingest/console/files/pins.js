// The counters that a reader has pinned. The browser keeps them, for this service.

const KEPT = "countersink-pins";
export const MOST = 6; // a chart has a colour for each

export const pins = () => {
  try {
    return [JSON.parse(localStorage.getItem(KEPT) ?? "[]")].flat().map(String).slice(0, MOST);
  } catch {
    return [];
  }
};

/** Pins the counter, or takes its pin away. With too many, the one that was pinned first goes. */
export function turn(name) {
  const others = pins().filter((one) => one !== name);
  localStorage.setItem(KEPT, JSON.stringify(others.length < pins().length ? others : [...others, name].slice(-MOST)));
}
