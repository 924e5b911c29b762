// What counters counted in each period of a range, as far as the service keeps it.

import { ApiError, counterPath, json } from "./api.js";

export const LENGTHS = { minute: 60_000, hour: 3_600_000, day: 86_400_000 };

/** The last periods, of which the present one is the last. */
export function lately(by, points, now = Date.now()) {
  const to = (Math.floor(now / LENGTHS[by]) + 1) * LENGTHS[by];
  return { by, from: to - points * LENGTHS[by], to };
}

/** As many periods as the range has, right before it. */
export const before = ({ by, from, to }) => ({ by, from: 2 * from - to, to: from });

/** The counts of a counter, one for each period of the range; null if the service keeps none of such periods. */
export async function counts(name, { by, from, to }) {
  const length = LENGTHS[by];
  const [begin, end] = [from, to].map((at) => new Date(at).toISOString());
  try {
    const found = await json(`${counterPath(name)}/series?by=${by}&from=${begin}&to=${end}`);
    const list = new Array(Math.round((to - from) / length)).fill(0);
    for (const one of found.points) list[(Date.parse(one.from) - from) / length] = Number(one.count);
    return { list, exact: found.exact, total: found.total };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
