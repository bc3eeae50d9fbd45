// Two evaluations on the same tasks, of one run or of two.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { choose, link, useAddress } from "./address";
import { api, isReport, isStored, type Row, type RunLine } from "./api";
import { useAnswer } from "./data";
import { evaluationsOf } from "./evaluations";
import { count, number, printable } from "./format";
import { type Change, changeOf, CHANGES, compare, type Pair, pairsOf } from "./paired";
import { Clipped, type Column, Crumbs, DataTable, Loading, Panel, ProblemBox } from "./ui";

export function CompareView({ run }: { run: string }) {
  const { query } = useAddress();
  const other = query["with"] ?? run;
  const infos = useAnswer((signal) => load(run, other, signal), JSON.stringify([run, other]));
  const crumbs = (
    <Crumbs
      items={[
        { label: "Runs", href: link([]) },
        { label: run, href: link(["run", run]) },
        { label: "Compare evaluations" },
      ]}
    />
  );
  if (!infos.value || infos.problem) {
    return (
      <>
        {crumbs}
        {infos.problem ? <ProblemBox problem={infos.problem} /> : <Loading />}
      </>
    );
  }
  const { success, first, second, runs } = infos.value;
  const a = query["a"] === undefined ? first[0] : Number(query["a"]);
  const b = query["b"] === undefined ? second.at(-1) : Number(query["b"]);
  const others = isReport ? [] : runs.filter((one) => one.id === run || isEvaluated(one)).map(({ id }) => id);
  return (
    <>
      {crumbs}
      <section class="panel">
        <form class="find" onSubmit={(event) => event.preventDefault()}>
          <Choice label="Evaluation A at step" value={a} options={first} onChange={(step) => choose({ a: step })} />
          <Choice label="Evaluation B at step" value={b} options={second} onChange={(step) => choose({ b: step })} />
          {others.length > 1 && (
            <Choice
              label="Run of B"
              value={other}
              options={others}
              onChange={(name) => choose({ with: name === run ? undefined : name, b: undefined })}
            />
          )}
        </form>
      </section>
      {a === undefined || b === undefined ? (
        <p class="muted empty">Both runs need an evaluation with stored rollouts.</p>
      ) : (
        <Compared a={{ run, step: a }} b={{ run: other, step: b }} success={success} />
      )}
    </>
  );
}

function isEvaluated({ state, last }: RunLine): boolean {
  return state === "unread" || (state !== "damaged" && Object.keys(last).some((name) => name.startsWith("evaluation/")));
}

/** The steps of both runs, and the reward from which an answer counts as right. */
async function load(run: string, other: string, signal: AbortSignal) {
  const [info, otherInfo, { runs }] = await Promise.all([
    api.run(run, signal),
    api.run(other, signal),
    api.runs(signal),
  ]);
  const [first, second] = await Promise.all([evaluationsOf(info), evaluationsOf(otherInfo)]);
  return { first, second, runs, success: Number(info.config["evaluation.success"] ?? 1) || 1 };
}

interface ChoiceProps<T> {
  label: string;
  value: T | undefined;
  options: T[];
  onChange: (value: string) => void;
}

function Choice<T extends string | number>({ label, value, options, onChange }: ChoiceProps<T>) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {printable(String(option))}
          </option>
        ))}
      </select>
    </label>
  );
}

interface Side {
  run: string;
  step: number;
}

function Compared({ a, b, success }: { a: Side; b: Side; success: number }) {
  const { only } = useAddress().query;
  const rows = useAnswer(
    (signal) => Promise.all([a, b].map(({ run, step }) => api.rows(run, "evaluation", step, signal))),
    JSON.stringify([a, b]),
  );
  const [before, after] = [rows.value?.[0]?.rows, rows.value?.[1]?.rows];
  const pairs = useMemo(() => pairsOf(before ?? [], after ?? []), [before, after]);
  if (rows.problem) return <ProblemBox problem={rows.problem} />;
  if (!before || !after) return <Loading />;
  if (!pairs.length) return <p class="muted empty">The two evaluations have no scored task in common.</p>;
  const shown = pairs.filter((pair) => !only || changeOf(pair, success) === only);
  const place = ({ run, step }: Side) => (a.run === b.run ? `step ${step}` : `${run}, step ${step}`);
  return (
    <>
      <Result pairs={pairs} success={success} only={only} a={place(a)} b={place(b)} />
      <Panel title={only ? `${number(shown.length)} of ${count(pairs.length, "task")}` : count(pairs.length, "task")}>
        <DataTable
          label="Tasks"
          rows={shown}
          columns={columns(a, b)}
          id={({ second }) => `${second.group}`}
          href={({ second }) => trajectory(b.run, second)}
          sort="difference"
          empty="No task fits."
          height="max(320px, calc(100vh - 340px))"
        />
      </Panel>
    </>
  );
}

const KINDS: Partial<Record<Change, string>> = { "wrong → right": "good", "right → wrong": "bad" };

interface ResultProps {
  pairs: Pair[];
  success: number;
  only: string | undefined;
  a: string;
  b: string;
}

function Result({ pairs, success, only, a, b }: ResultProps) {
  const { before, after, difference, margin } = useMemo(() => compare(pairs), [pairs]);
  const [low, high] = [difference - (margin ?? Infinity), difference + (margin ?? Infinity)];
  const verdict = low > 0 ? "better" : high < 0 ? "worse" : "no clear difference";
  return (
    <section class="panel results">
      <dl class="figures">
        <Figure name={`A: ${a}`} text={number(before)} />
        <Figure name={`B: ${b}`} text={number(after)} />
        <Figure
          name="B − A, mean of the tasks"
          text={`${difference > 0 ? "+" : ""}${number(difference)}`}
          detail={margin === null ? "" : `95 % interval ${number(low)} to ${number(high)}: ${verdict}`}
          kind={low > 0 ? "good" : high < 0 ? "bad" : ""}
        />
        {CHANGES.map((change) => {
          const tasks = pairs.filter((pair) => changeOf(pair, success) === change).length;
          const pressed = only === change;
          const filter = (
            <button
              aria-label={`${number(tasks)}: show the tasks that are ${change}`}
              aria-pressed={pressed}
              onClick={() => choose({ only: pressed ? undefined : change })}
            >
              {number(tasks)}
            </button>
          );
          return <Figure key={change} name={change} text={filter} kind={tasks ? KINDS[change] : ""} />;
        })}
      </dl>
      <p class="muted">
        Rewards of the {count(pairs.length, "task")} that both scored. The interval is of the paired differences.
      </p>
    </section>
  );
}

interface FigureProps {
  name: string;
  text: ComponentChildren;
  detail?: string;
  kind?: string;
}

function Figure({ name, text, detail, kind = "" }: FigureProps) {
  return (
    <div>
      <dt>{printable(name)}</dt>
      <dd class={kind}>{text}</dd>
      {detail && <dd class="detail muted">{detail}</dd>}
    </div>
  );
}

function trajectory(run: string, row: Row): string | null {
  if (!isStored(run, row.purpose, row.step, row.group)) return null;
  return link(["run", run, row.purpose, row.step, row.group, row.sibling]);
}

function columns(a: Side, b: Side): Column<Pair>[] {
  const linked = (key: "before" | "after", label: string, run: string, row: (pair: Pair) => Row): Column<Pair> => ({
    key,
    label,
    width: 90,
    numeric: true,
    value: (pair) => pair[key],
    show: (pair) => <a href={trajectory(run, row(pair)) ?? undefined}>{number(pair[key])}</a>,
  });
  return [
    { key: "task", label: "Task", width: 180, value: ({ task }) => task, show: ({ task }) => <Clipped text={task} /> },
    linked("before", "A", a.run, ({ first }) => first),
    linked("after", "B", b.run, ({ second }) => second),
    {
      key: "difference",
      label: "B − A",
      width: 90,
      numeric: true,
      value: ({ difference }) => difference,
      show: ({ difference }) => (
        <span class={difference > 0 ? "good" : difference < 0 ? "bad" : "muted"}>
          {difference > 0 ? "+" : ""}
          {number(difference)}
        </span>
      ),
    },
    {
      key: "tokens",
      label: "Tokens A",
      width: 80,
      numeric: true,
      value: ({ first }) => first.tokens,
      show: ({ first }) => number(first.tokens),
    },
    {
      key: "tokens_b",
      label: "Tokens B",
      width: 80,
      numeric: true,
      value: ({ second }) => second.tokens,
      show: ({ second }) => number(second.tokens),
    },
    {
      key: "stop",
      label: "Stop A",
      width: 90,
      value: ({ first }) => first.stop,
      show: ({ first }) => printable(first.stop),
    },
    {
      key: "stop_b",
      label: "Stop B",
      width: 90,
      value: ({ second }) => second.stop,
      show: ({ second }) => printable(second.stop),
    },
  ];
}
