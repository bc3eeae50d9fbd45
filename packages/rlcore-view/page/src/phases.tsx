// Time and memory of the phases of a step, with a column for each run.
import type { MetricsRow } from "./api";
import { gibibytes, printable, seconds } from "./format";
import { type Line, namesOf, valuesOf } from "./metrics";

/** The sum of the parts of a step. */
const WHOLE = "time/step_s";
const EVALUATION = "time/evaluation_s";

export function Phases({ lines }: { lines: Line[] }) {
  const names = namesOf(lines);
  const times = names.filter((name) => name.startsWith("time/"));
  const memory = names.filter((name) => name.startsWith("memory/"));
  if (!times.length) return <p class="muted">No times are recorded yet.</p>;
  return (
    <>
      <Bars
        title="Mean of a step"
        column="Time"
        lines={lines}
        parts={times.filter(isPart)}
        sums={[WHOLE, EVALUATION].filter((name) => times.includes(name))}
        of={(values) => values.reduce((sum, value) => sum + value, 0) / values.length}
        text={seconds}
      />
      {memory.length > 0 && (
        <Bars
          title="Most of all steps"
          column="Memory"
          lines={lines}
          parts={memory}
          sums={[]}
          of={(values) => Math.max(...values)}
          text={gibibytes}
        />
      )}
    </>
  );
}

interface BarsProps {
  title: string;
  /** The title of the column of a single run. */
  column: string;
  lines: Line[];
  parts: string[];
  /** Metrics that contain others. */
  sums: string[];
  /** What is shown of the values of all steps, of which there is at least one. */
  of: (values: number[]) => number;
  text: (value: number | null) => string;
}

/** A bar for each part and run. */
function Bars({ title, column, lines, parts, sums, of, text }: BarsProps) {
  const each = (name: string) =>
    lines.map(({ rows }) => {
      const values = [...valuesOf(rows, name).values()];
      return values.length ? of(values) : null;
    });
  const table = parts.map((name) => ({ name, values: each(name) }));
  const longest = Math.max(...table.flatMap(({ values }) => values.map((value) => value ?? 0)));
  return (
    <table class="phases">
      <thead>
        <tr>
          <th scope="col">{title}</th>
          {lines.map(({ run }) => (
            <th key={run} scope="col" class="numeric">
              {lines.length > 1 ? printable(run) : column}
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
                  <span>{text(value)}</span>
                </div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
      {sums.length > 0 && (
        <tfoot>
          {sums.map((name) => (
            <tr key={name} class={name === EVALUATION ? "apart" : ""}>
              <th scope="row">{name === WHOLE ? "whole step" : "each evaluation"}</th>
              {each(name).map((value, index) => (
                <td key={lines[index]?.run} class="numeric">
                  {text(value)}
                </td>
              ))}
            </tr>
          ))}
        </tfoot>
      )}
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
    .replace(/^(time|memory)\//, "")
    .replace(/_(s|gib)$/, "")
    .replaceAll("_", " ");
}
