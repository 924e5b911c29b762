// What a reader has chosen for this service, which the browser keeps: pinned counters, and whether "/" goes to the search.

const KEPT = "countersink-pins";
const SLASH = "countersink-slash";
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

/** Whether the key "/" goes to the search. Who speaks to the computer, and so presses keys by accident, turns it off. */
export const hasSlash = () => {
  try {
    return localStorage.getItem(SLASH) !== "off";
  } catch {
    return true;
  }
};

export const turnSlash = () => localStorage.setItem(SLASH, hasSlash() ? "off" : "on");
