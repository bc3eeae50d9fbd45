// How long the phases of a step take, with a column for each run.
import type { MetricsRow } from "./api";
import { printable, seconds } from "./format";
import { type Line, namesOf, valuesOf } from "./metrics";

/** The sum of the parts of a step. */
const WHOLE = "time/step_s";
const EVALUATION = "time/evaluation_s";

export function Phases({ lines }: { lines: Line[] }) {
  const names = namesOf(lines).filter((name) => name.startsWith("time/"));
  const parts = names.filter(isPart);
  const means = (name: string) => lines.map(({ rows }) => mean([...valuesOf(rows, name).values()]));
  const table = parts.map((name) => ({ name, values: means(name) }));
  const sums = [WHOLE, EVALUATION].filter((name) => names.includes(name));
  const longest = Math.max(...table.flatMap(({ values }) => values.map((value) => value ?? 0)));
  if (!names.length) return <p class="muted">No times are recorded yet.</p>;
  return (
    <table class="phases">
      <thead>
        <tr>
          <th scope="col">Mean of a step</th>
          {lines.map(({ run }) => (
            <th key={run} scope="col" class="numeric">
              {lines.length > 1 ? printable(run) : "Time"}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {table.map(({ name, values }) => (
          <tr key={name}>
            <th scope="row">{printable(label(name))}</th>
            {values.map((value, index) => (
              <td key={lines[index]?.run}>
                <div class="timebar">
                  <i
                    style={{
                      width: `calc(${(value ?? 0) / longest} * (100% - 76px))`,
                      background: lines[index]?.color,
                    }}
                  />
                  <span>{seconds(value)}</span>
                </div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
      <tfoot>
        {sums.map((name) => (
          <tr key={name} class={name === EVALUATION ? "apart" : ""}>
            <th scope="row">{name === WHOLE ? "whole step" : "each evaluation"}</th>
            {means(name).map((value, index) => (
              <td key={lines[index]?.run} class="numeric">
                {seconds(value)}
              </td>
            ))}
          </tr>
        ))}
      </tfoot>
    </table>
  );
}

/** The times of one step in a line. */
export function StepTimes({ metrics, purpose }: { metrics: MetricsRow; purpose: string }) {
  const names = Object.keys(metrics).filter((name) => name.startsWith("time/") && isPart(name));
  const wanted = purpose === "train" ? [...names, WHOLE] : [EVALUATION];
  const known = wanted.filter((name) => typeof metrics[name] === "number");
  if (!known.length) return null;
  const text = (name: string) => `${name === WHOLE ? "whole step" : label(name)} ${seconds(metrics[name])}`;
  return <p class="overview">Time: {printable(known.map(text).join(" · "))}</p>;
}

function isPart(name: string): boolean {
  return name !== WHOLE && name !== EVALUATION;
}

function label(name: string): string {
  return name
    .replace(/^time\//, "")
    .replace(/_s$/, "")
    .replaceAll("_", " ");
}

function mean(values: number[]): number | null {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}
