// Trajectories of a run by condition and text.
import { useRef, useState } from "preact/hooks";
import { choose, link, useAddress } from "./address";
import { api, type Found, isReport, isStored, type Num, type Row } from "./api";
import { useAnswer } from "./data";
import { count, failureText, number, printable } from "./format";
import { filesOf, useFresh } from "./live";
import { narrowed } from "./table";
import { TaskCurve } from "./task_curve";
import { pictures } from "./thumbnail";
import { Clipped, type Column, Crumbs, DataTable, Loading, Panel, ProblemBox } from "./ui";

const LIMIT = 1000;
const EXAMPLES: [string, string][] = [
  ["not scored", "reward is None"],
  ["cut at the token limit", 'stop == "length"'],
  ["tool errors", "tool_errors > 0"],
  ["no difference in the group", 'spread == 0 and purpose == "train"'],
];

export function FindView({ run }: { run: string }) {
  const { query } = useAddress();
  const changed = useFresh(run, filesOf);
  const { where, text, purpose, steps, task } = query;
  const sort = query["sort"] ?? "";
  const asked = { where, text, purpose, steps, task, sort, limit: LIMIT };
  const found = useAnswer((signal) => api.find(run, asked, signal), JSON.stringify([run, asked]), changed);
  const [columns, setColumns] = useState<string[]>([]);
  // A condition with an error has no answer, and its author needs the names.
  const all = useAnswer(
    async (signal) => (found.problem && !columns.length ? api.find(run, { limit: 1 }, signal) : undefined),
    `${run} ${found.problem !== undefined}`,
  );
  const known = (found.value ?? all.value)?.columns ?? columns;
  if (known.join() !== columns.join()) setColumns(known);
  const crumbs = (
    <Crumbs
      items={[
        { label: "Runs", href: link([]) },
        { label: run, href: link(["run", run]) },
        { label: "Find trajectories" },
      ]}
    />
  );
  if (isReport) {
    return (
      <>
        {crumbs}
        <p class="muted empty">A report cannot be searched. Use rlcore view with the run.</p>
      </>
    );
  }
  return (
    <>
      {crumbs}
      <Form
        key={JSON.stringify([where, text, purpose, steps, task])}
        query={query}
        problem={found.problem}
        columns={columns}
      />
      {task && found.value && !found.problem && <TaskCurve run={run} rows={found.value.rows} />}
      {found.value && !found.problem ? (
        <Results run={run} found={found.value} where={where ?? ""} sort={sort} text={text} />
      ) : (
        !found.problem && <Loading />
      )}
    </>
  );
}

/** Its fields keep what is typed while answers arrive; they are made anew when the address changes. */
interface FormProps {
  query: Record<string, string>;
  problem: (Error & { fix?: string }) | undefined;
  columns: string[];
}

function Form({ query, problem, columns }: FormProps) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    choose(Object.fromEntries([...fields].map(([name, value]) => [name, String(value).trim()])));
  };
  const condition = useRef<HTMLInputElement>(null);
  const insert = (name: string) => {
    const field = condition.current;
    field?.setRangeText(name, field.selectionStart ?? 0, field.selectionEnd ?? 0, "end");
    field?.focus();
  };
  // The server names the field that is wrong.
  const wrong = !problem ? "" : problem.message.startsWith("steps ") ? "steps" : "where";
  return (
    <section class="panel">
      <form class="find" onSubmit={submit}>
        <label class="grow">
          Condition
          <input
            name="where"
            ref={condition}
            data-filter
            class="code"
            defaultValue={query["where"] ?? ""}
            placeholder={'reward == 0 and stop == "length"'}
            spellcheck={false}
            aria-invalid={wrong === "where"}
          />
          {problem && wrong === "where" && <ProblemBox problem={problem} />}
        </label>
        <label>
          Text
          <input name="text" defaultValue={query["text"] ?? ""} placeholder="in messages, calls and verdicts" />
        </label>
        <label>
          Purpose
          <select name="purpose">
            {["", "train", "evaluation"].map((purpose) => (
              <option key={purpose} value={purpose} selected={purpose === (query["purpose"] ?? "")}>
                {purpose || "all"}
              </option>
            ))}
          </select>
        </label>
        <label class="small">
          Steps
          <input name="steps" defaultValue={query["steps"] ?? ""} placeholder="3-9" aria-invalid={wrong === "steps"} />
          {problem && wrong === "steps" && <ProblemBox problem={problem} />}
        </label>
        <label class="small">
          Task
          <input name="task" defaultValue={query["task"] ?? ""} />
        </label>
        <button class="primary">Find</button>
      </form>
      <div class="chips" role="group" aria-label="Examples">
        <span class="muted">Examples</span>
        {EXAMPLES.map(([label, where]) => (
          <button
            key={label}
            class="chip"
            aria-pressed={query["where"] === where}
            title={where}
            onClick={() => choose({ where })}
          >
            {label}
          </button>
        ))}
        {columns.length > 0 && (
          <details open={problem !== undefined}>
            <summary>Names of columns</summary>
            <p class="names">
              {columns.map((name) => (
                <button key={name} class="code" title="Insert it into the condition" onClick={() => insert(name)}>
                  {printable(name)}
                </button>
              ))}
            </p>
          </details>
        )}
      </div>
    </section>
  );
}

/** The trajectories of a report, which is its answer to a search for all. */
export function Kept({ run }: { run: string }) {
  const { value } = useAnswer((signal) => api.find(run, {}, signal), run);
  return value ? <Results run={run} found={value} where="" sort="" /> : null;
}

interface ResultsProps {
  run: string;
  found: Found;
  where: string;
  sort: string;
  /** What was searched for, which a trajectory marks. */
  text?: string;
}

function Results({ run, found, where, sort, text }: ResultsProps) {
  const { rows, total, more, searched, about, columns: names } = found;
  const cut = more || total > rows.length ? `; the first ${number(rows.length)} are shown` : "";
  return (
    <Panel title={`${more ? "at least " : ""}${number(total)} of ${count(searched, "trajectory")}${cut}`}>
      <DataTable
        label="Trajectories"
        rows={rows}
        columns={columnsOf(
          rows,
          names.filter((name) => mentions(where, name)).map(bare),
          found.pictures ? run : null,
        )}
        id={(row) => [row.purpose, row.step, row.group, row.sibling, row.trained_step].join("-")}
        href={({ purpose, step, group, sibling }) =>
          isStored(run, purpose, step, group) ? link(["run", run, purpose, step, group, sibling], { text }) : null
        }
        sort={sort}
        onSort={isReport ? undefined : (next) => choose({ sort: next })}
        sorts={isReport}
        height="max(320px, calc(100vh - 300px))"
        tall={found.pictures}
        empty="No trajectory fits."
      />
      {about && <p class="muted remark">This report has {about}.</p>}
    </Panel>
  );
}

/** Whether a condition has a name, which is written as the server writes it, apart from the quotes. */
function mentions(where: string, name: string): boolean {
  if (name.includes("[")) return where.replaceAll("'", '"').includes(name);
  return !STANDARD.has(name) && where.split(/\W+/).includes(name);
}

/** "pictured" is the run, if its trajectories have pictures. */
function columnsOf(rows: Row[], extra: string[], pictured: string | null): Column<Row>[] {
  const numeric = (
    key: string,
    width: number,
    value: (row: Row) => number | null | undefined,
    label = key,
  ): Column<Row> => ({
    key,
    label: label[0]?.toUpperCase() + label.slice(1).replaceAll("_", " "),
    width,
    numeric: true,
    value,
    show: (row) => number(value(row)),
  });
  /** Absent if no row has something to show. */
  const words = (key: string, width: number, value: (row: Row) => string | null | undefined): Column<Row>[] => {
    const column = { key, label: key[0]?.toUpperCase() + key.slice(1), width, value };
    return rows.some(value) ? [{ ...column, show: (row) => <Clipped text={value(row) ?? ""} /> }] : [];
  };
  const columns: Column<Row>[] = [
    ...(pictured === null ? [] : [pictures<Row>(pictured, (row) => row, named)]),
    ...words("purpose", 96, ({ purpose }) => purpose),
    numeric("step", 66, ({ step }) => step),
    numeric("group", 70, ({ group }) => group),
    numeric("sibling", 76, ({ sibling }) => sibling),
    ...words("task", 120, ({ task }) => task),
    ...words("match", 300, ({ match }) => match),
    numeric("reward", 76, ({ reward }) => reward),
    numeric("mean", 104, ({ mean }) => mean, "group_mean"),
    ...words("stop", 102, ({ stop }) => stop),
    numeric("tokens", 78, ({ tokens }) => tokens),
    numeric("turns", 70, ({ turns }) => turns),
    ...words("fate", rows.some(isTrainedLater) ? 128 : 84, (row) =>
      isTrainedLater(row) ? `trained in step ${row.trained_step}` : row.fate,
    ),
    ...extra.map((name): Column<Row> => {
      const value = (row: Row) => extraOf(row, name);
      const isNumeric = !rows.some((row) => typeof value(row) === "string");
      return {
        key: name,
        label: printable(name),
        width: Math.max(isNumeric ? 90 : 120, 40 + 7 * name.length),
        numeric: isNumeric,
        value,
        show: (row) => (isNumeric ? number(value(row) as Num) : <Clipped text={String(value(row) ?? "–")} />),
      };
    }),
    ...words("failure", 240, ({ failure }) => failureText(failure ?? "")),
  ];
  const failures = rows.every(({ failure }) => failure) ? ["failure"] : [];
  return narrowed(columns, ["picture", "step", "reward", ...extra, ...failures, "match", "fate", "task"]);
}

const isTrainedLater = ({ step, trained_step }: Row) => trained_step !== undefined && trained_step !== step;

const named = ({ purpose, step, group, sibling }: Row) =>
  `${purpose} step ${step}, group ${group}, sibling ${sibling}`;

const STANDARD = new Set([
  "purpose",
  "step",
  "group",
  "sibling",
  "task",
  "reward",
  "mean",
  "stop",
  "tokens",
  "turns",
  "fate",
  "failure",
]);

/** The name of 'metrics["NAME"]'. */
function bare(name: string): string {
  return JSON.parse(/\["(.*)"\]$/s.exec(name)?.[0] ?? JSON.stringify([name]))[0];
}

function extraOf(row: Row, name: string): Num | string {
  const value = row[name as keyof Row] ?? row.sampling?.[name] ?? row.metrics[name] ?? row.rewards[name] ?? null;
  if (Array.isArray(value)) return [...new Set(value)].join(" to ");
  return typeof value === "number" || value === null ? value : String(value);
}
