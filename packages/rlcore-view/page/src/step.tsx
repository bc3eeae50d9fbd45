// A step: how its rewards, lengths and ends are distributed, and its groups.
import { useMemo, useState } from "preact/hooks";
import { choose, link, useAddress } from "./address";
import { api, isStored, type MetricsRow, type Row, type StepFile } from "./api";
import { useAnswer } from "./data";
import { count, failureText, number, printable } from "./format";
import { columnsOf, type GroupLine, groupsOf, WHY } from "./groups";
import { fits, Histogram, parsePick, type Pick, printPick, Words } from "./histogram";
import { filesOf, useFresh } from "./live";
import { useMetrics } from "./metrics";
import { ExtremesLine } from "./extremes";
import { StepTimes } from "./phases";
import { Crumbs, DataTable, Filter, Loading, Panel, Pill, ProblemBox } from "./ui";

export function StepView({ run, purpose, step }: { run: string; purpose: string; step: number }) {
  const changed = useFresh(run, filesOf);
  const [sampling, setSampling] = useState(false);
  const rows = useAnswer(
    (signal) =>
      api.rows(run, purpose, step, signal).then((found) => {
        setSampling(found.unfinished);
        return found;
      }),
    JSON.stringify([run, purpose, step]),
    sampling ? changed : "",
  );
  const info = useAnswer((signal) => api.run(run, signal), run, changed);
  const files = (info.value?.files ?? []).filter(
    (file) => file.purpose === purpose && isStored(run, purpose, file.step),
  );
  const lines = useMetrics([run], changed).value?.[0];
  // A step that was repeated after a resume counts with its last line.
  const metrics = useMemo(() => lines?.filter((line) => line["step"] === step).at(-1) ?? {}, [lines, step]);
  const shared = { run, purpose, step, metrics };
  return (
    <>
      <div class="top">
        <Crumbs
          items={[
            { label: "Runs", href: link([]) },
            { label: run, href: link(["run", run]) },
            { label: `${purpose === "train" ? "Training step" : "Evaluation at step"} ${step}` },
          ]}
        />
        <span role="status">{sampling && <Pill kind="accent">sampling</Pill>}</span>
        <Neighbours run={run} files={files} step={step} />
      </div>
      {rows.problem && <ProblemBox problem={rows.problem} />}
      {rows.value && !rows.problem ? (
        <Rows key={`${purpose} ${step}`} {...shared} {...rows.value} />
      ) : (
        !rows.problem && <Loading />
      )}
    </>
  );
}

function Neighbours({ run, files, step }: { run: string; files: StepFile[]; step: number }) {
  const before = files.filter((file) => file.step < step).at(-1);
  const after = files.find((file) => file.step > step);
  return (
    <nav class="neighbours" aria-label="Steps">
      {before && (
        <a rel="prev" href={link(["run", run, before.purpose, before.step])}>
          ← step {before.step}
        </a>
      )}
      {after && (
        <a rel="next" href={link(["run", run, after.purpose, after.step])}>
          step {after.step} →
        </a>
      )}
    </nav>
  );
}

interface RowsProps {
  run: string;
  purpose: string;
  step: number;
  metrics: MetricsRow;
  rows: Row[];
  pictures: boolean;
}

function Rows({ run, purpose, step, metrics, rows, pictures }: RowsProps) {
  const { query } = useAddress();
  const pick = useMemo(() => parsePick(query["pick"]), [query["pick"]]);
  const filter = query["filter"] ?? "";
  const groups = useMemo(() => groupsOf(rows), [rows]);
  const fitting = useMemo(() => groups.filter((group) => shows(group, pick, filter)), [groups, pick, filter]);
  const columns = useMemo(() => columnsOf(groups, pictures ? run : null), [groups, pictures]);
  const onPick = (next: Pick | null) => choose({ pick: next ? printPick(next) : undefined });
  if (!rows.length) return <p class="muted empty">No trajectories are stored for this step yet.</p>;
  const actions = (
    <>
      {pick && <button onClick={() => onPick(null)}>{described(pick)} ×</button>}
      <Filter value={filter} label="Filter by task" onChange={(text) => choose({ filter: text })} />
    </>
  );
  return (
    <>
      <Summary {...{ purpose, step, metrics, rows, groups }} />
      <StepTimes metrics={metrics} purpose={purpose} />
      <ExtremesLine {...{ run, purpose, step }} />
      <Distributions rows={rows} groups={groups} pick={pick} onPick={onPick} />
      <Panel title={`${number(fitting.length)} of ${count(groups.length, "group")}`} actions={actions}>
        <DataTable
          label={`Groups of ${purpose} step ${step}`}
          rows={fitting}
          columns={columns}
          id={({ key }) => key}
          href={(line) =>
            isStored(run, purpose, line.step, line.group) ? link(["run", run, purpose, ...placeOf(line)]) : null
          }
          sort={query["sort"]}
          onSort={(sort) => choose({ sort })}
          height="max(320px, calc(100vh - 150px))"
          tall={pictures}
          empty="No group fits the filter."
        />
      </Panel>
    </>
  );
}

/** A group of one trajectory is opened as that trajectory. */
function placeOf({ step, group, rows: [first, ...others] }: GroupLine): number[] {
  return first && !others.length ? [step, group, first.sibling] : [step, group];
}

function shows(group: GroupLine, pick: Pick | null, filter: string): boolean {
  const named = `${group.task} ${group.environment}`.toLowerCase().includes(filter.toLowerCase());
  return named && (!pick || group.rows.some((row) => fits(row, pick)));
}

function described({ column, low, high, word }: Pick): string {
  const name = column.replace(/^(rewards|metrics)\//, "");
  if (word !== undefined) return printable(`${name}: ${word}`);
  return printable(`${name}: ${number(low)}${low === high ? "" : ` to ${number(high)}`}`);
}

function Summary({ purpose, step, metrics, rows, groups }: Omit<RowsProps, "run" | "pictures"> & { groups: GroupLine[] }) {
  const scored = rows.map(({ reward }) => reward).filter((reward) => reward !== null);
  const mean = scored.length ? scored.reduce((sum, reward) => sum + reward, 0) / scored.length : null;
  const equal = groups.filter(({ rows, spread }) => rows.length > 1 && spread === 0).length;
  const excluded = rows.filter((row) => row.excluded).length;
  const isTraining = purpose === "train";
  const accuracy = metrics["evaluation/accuracy"];
  const facts = [
    count(groups.length, isTraining ? "group" : "task"),
    rows.length > groups.length && count(rows.length, "trajectory"),
    !isTraining && accuracy !== undefined && `accuracy ${number(accuracy)}`,
    `mean reward ${number(mean)}`,
    rows.length > scored.length && `${number(rows.length - scored.length)} not scored`,
    isTraining && rows.some((row) => row.step !== step) && span("sampled in step", rows.map((row) => row.step)),
    isTraining && equal > 0 && `${count(equal, "group")} without a difference`,
    excluded > 0 && `${number(excluded)} excluded`,
    count(
      sum(rows, ({ tokens }) => tokens),
      "token",
    ),
    span(
      "staleness",
      rows.map(({ staleness }) => staleness),
    ),
    span(
      "policy version",
      rows.flatMap(({ versions }) => versions ?? []),
    ),
  ];
  return <p class="overview">{facts.filter(Boolean).join(" · ")}</p>;
}

function sum(rows: Row[], value: (row: Row) => number): number {
  return rows.reduce((total, row) => total + value(row), 0);
}

function span(name: string, values: (number | undefined)[]): string {
  const known = values.filter((value) => value !== undefined);
  if (!known.length) return "";
  let [low, high] = [Infinity, -Infinity];
  for (const value of known) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return `${name} ${low === high ? number(low) : `${number(low)} to ${number(high)}`}`;
}

interface DistributionsProps {
  rows: Row[];
  groups: GroupLine[];
  pick: Pick | null;
  onPick: (pick: Pick | null) => void;
}

function Distributions({ rows, groups, pick, onPick }: DistributionsProps) {
  const shared = { rows, pick, onPick };
  const firsts = { rows: groups.flatMap((group) => group.rows.slice(0, 1)), pick, onPick };
  const rewards = [...new Set(rows.flatMap((row) => Object.keys(row.rewards)))];
  const metrics = [...new Set(rows.flatMap((row) => Object.keys(row.metrics)))].filter((name) => name !== "turns");
  return (
    <Panel title="Distributions">
      <div class="histograms">
        <Histogram title="reward" column="reward" {...shared} />
        {rewards.length > 1 &&
          rewards.map((id) => <Histogram key={id} title={id} column={`rewards/${id}`} optional {...shared} />)}
        <Histogram title="tokens" column="tokens" {...shared} />
        <Histogram title="turns" column="turns" optional {...shared} />
        <Histogram title="staleness" column="staleness" optional {...shared} />
        <Words title="stop" column="stop" {...shared} />
        <Words title="groups" column="fate" {...firsts} />
        <Words title="groups dropped because" column="why" show={(why) => WHY[why] ?? why} {...firsts} />
        <Words title="not scored" column="failure" show={failureText} {...shared} />
        <Words title="environment" column="environment" {...shared} />
        {metrics.slice(0, 12).map((name) => (
          <Histogram key={name} title={name.replaceAll("_", " ")} column={`metrics/${name}`} optional {...shared} />
        ))}
      </div>
    </Panel>
  );
}
