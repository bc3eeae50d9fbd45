// How long the phases of a step take, with a column for each run.
import { printable, seconds } from "./format";
import { type Line, namesOf, valuesOf } from "./metrics";

/** "step_s" is the sum of the others except "evaluation_s", so it comes last and has no bar. */
const WHOLE = "time/step_s";

export function Phases({ lines }: { lines: Line[] }) {
  const names = namesOf(lines).filter((name) => name.startsWith("time/") && name !== WHOLE);
  const means = (name: string) => lines.map(({ rows }) => mean([...valuesOf(rows, name).values()]));
  const table = names.map((name) => ({ name, values: means(name) }));
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
        <tr>
          <th scope="row">whole step</th>
          {means(WHOLE).map((value, index) => (
            <td key={lines[index]?.run} class="numeric">
              {seconds(value)}
            </td>
          ))}
        </tr>
      </tfoot>
    </table>
  );
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
