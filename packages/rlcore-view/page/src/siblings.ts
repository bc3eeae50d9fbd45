// The columns of a group: siblings that are equal share one, and each shows where it differs from the first.
import type { Trajectory } from "./api";
import { firstDifference, isBefore, messagesOf, type Place } from "./trajectory/difference";

export const byNumber = (one: Trajectory, other: Trajectory) => one.row.sibling - other.row.sibling;
export const byReward = (one: Trajectory, other: Trajectory) =>
  (other.row.reward ?? -Infinity) - (one.row.reward ?? -Infinity) || byNumber(one, other);

/** Siblings with the same messages and the same result. */
export type Column = [Trajectory, ...Trajectory[]];

export function columnsOf(ordered: Trajectory[]): Column[] {
  const columns = new Map<string, Column>();
  for (const one of ordered) {
    const { row, rewards, failure, segments } = one;
    const values = rewards.map(({ value, components }) => [value, components]);
    const result = [row.role, row.reward, row.stop, row.excluded, failure, values];
    const isControl = segments.some((segment) => segment.series.length);
    const key = isControl ? String(row.sibling) : JSON.stringify([messagesOf(one), result]);
    const same = columns.get(key);
    if (same) same.push(one);
    else columns.set(key, [one]);
  }
  return [...columns.values()];
}

/** Where each column first differs from the first one; for the first, where any of the others does. */
export function differencesOf(columns: Trajectory[]): (Place | null)[] {
  const [first, ...others] = columns.map(messagesOf);
  if (!first) return [];
  const places = others.map((other) => firstDifference(first, other));
  const earliest = places.reduce((one, other) => (!one || (other && isBefore(other, one)) ? other : one), null);
  return [earliest, ...places];
}
