// Metrics of runs, of which only new lines are asked for.
import { useRef } from "preact/hooks";
import { api, type Metrics, type MetricsRow } from "./api";
import { type Answer, useAnswer } from "./data";

/** A run in plots and tables that show several. */
export interface Line {
  run: string;
  color: string;
  rows: MetricsRow[];
}

/** The lines of metrics.jsonl of each run, in the order of the runs. */
export function useMetrics(runs: string[], fresh: string): Answer<MetricsRow[][]> {
  const known = useRef(new Map<string, Metrics>());
  const load = async (run: string, signal: AbortSignal): Promise<MetricsRow[]> => {
    const last = known.current.get(run) ?? { rows: [], next: 0 };
    let found = await api.metrics(run, last.next, signal);
    // A resumed run may have fewer lines than before.
    const shrunk = found.next < last.next;
    if (shrunk) found = await api.metrics(run, 0, signal);
    const rows = shrunk ? found.rows : [...last.rows, ...found.rows];
    known.current.set(run, { rows, next: found.next });
    return rows;
  };
  return useAnswer((signal) => Promise.all(runs.map((run) => load(run, signal))), JSON.stringify(runs), fresh);
}

/** Names of all metrics, in the order in which they occur. */
export function namesOf(lines: Line[]): string[] {
  const names = new Set<string>();
  for (const { rows } of lines) for (const row of rows) for (const name in row) names.add(name);
  names.delete("step");
  names.delete("time");
  return [...names];
}

/** The value of each step. A step that was repeated after a resume counts once, with its last value. */
export function valuesOf(rows: MetricsRow[], name: string): Map<number, number> {
  const values = new Map<number, number>();
  for (const row of rows) {
    const value = row[name];
    if (typeof value === "number" && typeof row["step"] === "number") values.set(row["step"], value);
  }
  return values;
}

/** Exponential moving average without the bias of its start. */
export function smoothed(values: (number | null)[], weight: number): (number | null)[] {
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}
