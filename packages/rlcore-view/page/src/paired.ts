// Two evaluations of the same tasks.
import type { Row } from "./api";

export interface Pair {
  task: string;
  first: Row;
  second: Row;
  /** Mean reward of the samples of the task in each evaluation. */
  before: number;
  after: number;
  difference: number;
}

interface Sampled {
  row: Row;
  mean: number;
}

/** Tasks that both evaluations scored. */
export function pairsOf(first: Row[], second: Row[]): Pair[] {
  const before = byTask(first);
  const pairs: Pair[] = [];
  for (const [key, { row, mean }] of byTask(second)) {
    const other = before.get(key);
    if (!other) continue;
    pairs.push({
      task: row.task,
      first: other.row,
      second: row,
      before: other.mean,
      after: mean,
      difference: differenceOf(other.mean, mean),
    });
  }
  return pairs;
}

function byTask(rows: Row[]): Map<string, Sampled> {
  const tasks = new Map<string, { row: Row; rewards: number[] }>();
  for (const row of rows) {
    if (row.reward === null) continue;
    const key = `${row.environment}\n${row.task}`;
    const known = tasks.get(key);
    if (known) known.rewards.push(row.reward);
    else tasks.set(key, { row, rewards: [row.reward] });
  }
  return new Map([...tasks].map(([key, { row, rewards }]) => [key, { row, mean: meanOf(rewards) }]));
}

export interface Comparison {
  before: number;
  after: number;
  difference: number;
  /** Half of the 95 % interval of the mean difference; null for fewer than two tasks. */
  margin: number | null;
}

/** Whether the mean reward of a task reached the success in the first and in the second evaluation. */
export const CHANGES = ["wrong → right", "right → wrong", "right in both", "wrong in both"] as const;
export type Change = (typeof CHANGES)[number];

export function changeOf({ before, after }: Pair, success: number): Change {
  if (before >= success) return after >= success ? "right in both" : "right → wrong";
  return after >= success ? "wrong → right" : "wrong in both";
}

export function compare(pairs: Pair[]): Comparison {
  const differences = pairs.map(({ difference }) => difference);
  const [before, after] = [meanOf(pairs.map((pair) => pair.before)), meanOf(pairs.map((pair) => pair.after))];
  return {
    before,
    after,
    difference: differenceOf(before, after),
    margin: marginOf(differences),
  };
}

/** Smaller differences are rounding errors of means. */
const LEAST = 1e-9;

function differenceOf(before: number, after: number): number {
  return Math.abs(after - before) < LEAST ? 0 : after - before;
}

function meanOf(values: number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** From the distribution of Student, whose quantile is approximated within 1 % from five degrees of freedom on. */
function marginOf(differences: number[]): number | null {
  const degrees = differences.length - 1;
  if (degrees < 1) return null;
  const mean = meanOf(differences);
  const variance = differences.reduce((sum, value) => sum + (value - mean) ** 2, 0) / degrees;
  const quantile = 1.96 + 2.372 / degrees + 2.82 / degrees ** 2 + 2.56 / degrees ** 3 + 3 / degrees ** 5;
  return quantile * Math.sqrt(variance / differences.length);
}
