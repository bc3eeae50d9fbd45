// One run: findings, curves, steps, time of the phases, configuration and versions.
import { useState } from "preact/hooks";
import { link } from "./address";
import { api, isReport, isStored, type MetricsRow, type Num, type Run } from "./api";
import { series } from "./colors";
import { Curves } from "./curves";
import { useAnswer } from "./data";
import { CompareLink } from "./evaluations";
import { Kept } from "./find";
import { Findings } from "./findings";
import { count, date, number, printable, seconds } from "./format";
import { useFresh } from "./live";
import { type Line, useMetrics } from "./metrics";
import { Phases } from "./phases";
import { StatePill } from "./state";
import { type Column, Crumbs, DataTable, Filter, Loading, Panel, Pill, ProblemBox } from "./ui";

export function RunView({ run }: { run: string }) {
  const fresh = useFresh(run);
  const { value, problem } = useAnswer((signal) => api.run(run, signal), run, fresh);
  const metrics = useMetrics([run], fresh);
  const found = useAnswer((signal) => api.findings(run, signal), run, fresh);
  const crumbs = <Crumbs items={[{ label: "Runs", href: link([]) }, { label: run }]} />;
  if (!value) {
    return (
      <>
        {crumbs}
        {problem ? <ProblemBox problem={problem} /> : <Loading />}
      </>
    );
  }
  const rows = metrics.value?.[0] ?? [];
  const lines: Line[] = [{ run, color: series(0), rows }];
  const isRun = Object.keys(value.config).length > 0; // otherwise a file of rollouts, of which nothing else is known
  const files = value.files.filter(({ purpose, step }) => isStored(run, purpose, step));
  return (
    <>
      {crumbs}
      <Header run={value} />
      {problem && <ProblemBox problem={problem} />}
      {metrics.problem && <ProblemBox problem={metrics.problem} />}
      {isRun && (
        <Panel title="Findings">
          {found.problem && <ProblemBox problem={found.problem} />}
          {found.value ? (
            <Findings
              run={run}
              findings={found.value.findings}
              steps={value.step}
              hasStep={(step) => files.some((file) => file.step === step && file.purpose === "train")}
            />
          ) : (
            !found.problem && <Loading />
          )}
        </Panel>
      )}
      {rows.length > 0 && <Curves lines={lines} files={files} />}
      {isReport && <Kept run={run} />}
      <div class="sides">
        {isRun && (
          <Panel title="Training steps">
            <Steps run={value} rows={rows} purpose="train" />
          </Panel>
        )}
        <Panel title="Evaluations" actions={<CompareLink run={run} />}>
          <Steps run={value} rows={rows} purpose="evaluation" />
        </Panel>
      </div>
      {isRun && (
        <div class="sides">
          <Configuration run={value} />
          <div class="stack">
            <Panel title="Time and memory of the phases">
              <Phases lines={lines} />
            </Panel>
            <Panel title="Versions and machine">
              <dl class="about wide" tabIndex={0} aria-label="Versions and machine">
                {Object.entries(value.surroundings).map(([name, text]) => (
                  <div key={name}>
                    <dt>{printable(name)}</dt>
                    <dd>{printable(text)}</dd>
                  </div>
                ))}
              </dl>
            </Panel>
          </div>
        </div>
      )}
    </>
  );
}

function Header({ run }: { run: Run }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(run.command).then(() => setCopied(true));
  const step = run.steps ? `${number(run.step)} of ${number(run.steps)}` : number(run.step);
  return (
    <section class="panel header" aria-label="Summary">
      <p class="hidden" role="status">
        {run.state}, {run.activity || `step ${step}`}
      </p>
      <dl class="about">
        <div>
          <dt>State</dt>
          <dd>
            <StatePill state={run.state} /> {run.state === "stopped" && <span class="warn">at {step}</span>}
          </dd>
        </div>
        <Fact name="Recipe" text={run.recipe} />
        <Fact name="Model" text={run.model} />
        <Fact name="Environment" text={run.environment} />
        {run.activity ? <Fact name="Before the first step" text={run.activity} /> : <Fact name="Step" text={step} />}
        <Fact name="Reward" text={number(run.last["reward/mean"])} />
        <Fact name="Evaluation accuracy" text={number(run.last["evaluation/accuracy"])} />
        <Fact name="Started" text={date(run.started)} />
        <Fact name="Checkpoints" text={run.checkpoints.join(", ")} />
      </dl>
      {run.problem && <p class="bad">{printable(run.problem)}</p>}
      {run.command && (
        <p class="command">
          <code title={printable(run.command)}>{printable(run.command)}</code>
          <button onClick={copy}>{copied ? "Copied" : "Copy"}</button>
        </p>
      )}
    </section>
  );
}

function Fact({ name, text }: { name: string; text: string }) {
  if (!text || text === "–") return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{printable(text)}</dd>
    </div>
  );
}

interface StepLine {
  step: number;
  unfinished: boolean;
  metrics: MetricsRow;
}

const EQUAL = "Share of the trained groups whose rewards are all equal; they teach nothing";
const DROPPED = "Groups that were sampled and not trained, such as those whose rewards are all equal";

function percentage(share: Num | undefined): string {
  return typeof share === "number" ? `${number(100 * share, 1)} %` : "–";
}

/** The sampled tokens of a step, or what it trained instead. */
function Sampled({ metrics }: { metrics: MetricsRow }) {
  const carried = metrics["filter/carried_in"];
  if (metrics["tokens/sampled"] !== 0 || !carried) return <>{number(metrics["tokens/sampled"])}</>;
  const title = `Nothing was sampled. The step trained ${count(carried, "group")} left over from earlier steps.`;
  return <span title={title}>{number(carried)} carried</span>;
}

/** Steps that have rollouts, the newest first. */
function Steps({ run, rows, purpose }: { run: Run; rows: MetricsRow[]; purpose: "train" | "evaluation" }) {
  const byStep = new Map(rows.map((row) => [row["step"], row]));
  const files = run.files.filter((file) => file.purpose === purpose);
  const lines = files.map(({ step, unfinished }): StepLine => ({ step, unfinished, metrics: byStep.get(step) ?? {} }));
  const metric = (label: string, name: string, width: number, show = number, help = name): Column<StepLine> => ({
    key: name,
    label,
    help,
    width,
    numeric: true,
    value: ({ metrics }) => metrics[name],
    show: ({ metrics }) => show(metrics[name]),
  });
  const step: Column<StepLine> = {
    key: "step",
    label: "Step",
    width: 84,
    numeric: true,
    value: (line) => line.step,
    show: ({ step, unfinished }) => (
      <>
        {unfinished && <Pill kind="accent">sampling</Pill>} {step}
      </>
    ),
  };
  const drops = rows.some((row) => row["filter/dropped"]);
  const columns: Column<StepLine>[] =
    purpose === "train"
      ? [
          step,
          metric("Reward", "reward/mean", 70),
          metric("Accuracy", "accuracy", 80),
          metric("Unscored", "not_scored", 84),
          ...(drops ? [metric("Dropped", "filter/dropped", 80, number, DROPPED)] : []),
          ...(drops && !rows.some((row) => row["groups/equal"])
            ? []
            : [metric("Equal, of trained", "groups/equal", 124, percentage, EQUAL)]),
          { ...metric("Tokens", "tokens/sampled", 80), show: (line) => <Sampled metrics={line.metrics} /> },
          metric("Time", "time/step_s", 80, seconds),
        ]
      : [
          step,
          metric("Accuracy", "evaluation/accuracy", 80),
          metric("Reward", "evaluation/reward", 70),
          metric("Unscored", "evaluation/not_scored", 84),
          metric("Time", "time/evaluation_s", 80, seconds),
        ];
  return (
    <DataTable
      label={purpose === "train" ? "Training steps" : "Evaluations"}
      rows={lines}
      columns={columns}
      id={({ step }) => String(step)}
      href={({ step }) => (isStored(run.id, purpose, step) ? link(["run", run.id, purpose, step]) : null)}
      sort="-step"
      height="320px"
      empty="No rollouts are stored yet."
    />
  );
}

/** Values that are not the default come first. */
function Configuration({ run }: { run: Run }) {
  const [filter, setFilter] = useState("");
  const word = filter.toLowerCase();
  const entries = Object.entries(run.config)
    .map(([key, text]) => ({ key, text, origin: run.origins[key] ?? "" }))
    .filter(({ key, text, origin }) => `${key} ${text} ${origin}`.toLowerCase().includes(word));
  const isDefault = ({ origin }: { origin: string }) => origin === "default";
  const ordered = [...entries.filter((entry) => !isDefault(entry)), ...entries.filter(isDefault)];
  return (
    <Panel title="Configuration" actions={<Filter value={filter} label="Filter configuration" onChange={setFilter} />}>
      <div class="scroll tall" tabIndex={0} role="group" aria-label="Configuration">
        <table class="configuration">
          <tbody>
            {ordered.map((entry) => (
              <tr key={entry.key} class={isDefault(entry) ? "default" : ""}>
                <th scope="row">
                  <code>{printable(entry.key)}</code>
                </th>
                <td>
                  <code>{printable(entry.text)}</code>
                </td>
                <td class="muted">{printable(entry.origin)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {!ordered.length && <p class="muted empty">No key fits the filter.</p>}
      </div>
    </Panel>
  );
}
