// All runs, and the comparison of those that are selected.
import { useEffect, useState } from "preact/hooks";
import { choose, link, useAddress } from "./address";
import { api, isReport, isStored, type Run, type RunLine, type Runs } from "./api";
import { series } from "./colors";
import { Curves } from "./curves";
import { type Answer, useAnswer } from "./data";
import { Findings } from "./findings";
import { count, date, number, printable } from "./format";
import { useKeys } from "./keyboard";
import { type Line, useMetrics } from "./metrics";
import { Phases } from "./phases";
import { Spark, StatePill } from "./state";
import { narrowed } from "./table";
import { Clipped, type Column, DataTable, Filter, Loading, Panel, ProblemBox } from "./ui";

const EVERY_MS = 5000;
/** Between the questions while runs are unread. */
const SOON_MS = 50;

/** All runs. They are asked for again while the page is visible: runs go on, and new ones begin. */
function useRuns(): Answer<Runs> {
  const [asked, setAsked] = useState(0);
  const answer = useAnswer((signal) => api.runs(signal), "runs", String(asked));
  useEffect(() => {
    if (isReport) return;
    const ask = () => (document.hidden ? (timer = setTimeout(ask, EVERY_MS)) : setAsked((last) => last + 1));
    let timer = setTimeout(ask, unreadOf(answer.value) ? SOON_MS : EVERY_MS);
    return () => clearTimeout(timer);
  }, [answer]);
  return answer;
}

const unreadOf = (found: Runs | undefined) => found?.runs.filter(({ state }) => state === "unread").length ?? 0;

// Names are encoded for their own commas.
const selectedIn = (text: string | undefined) => (text ? text.split(",").map(decodeURIComponent) : []);
const joined = (runs: string[]) => runs.map(encodeURIComponent).join(",");
const select = (runs: string[]) => choose({ runs: joined(runs) });

/** The place that compares runs. */
export const comparison = (runs: string[]) => link([], { runs: joined(runs) });

export function RunsView() {
  const { query } = useAddress();
  const [filter, setFilter] = useState("");
  const { value, problem } = useRuns();
  useKeys([{ key: "Space", does: "select the run of the row, to compare it" }]);
  if (problem && !value) return <ProblemBox problem={problem} />;
  if (!value) return <Loading />;
  const known = value.runs.filter(({ state }) => state !== "damaged").map(({ id }) => id);
  const selected = selectedIn(query["runs"]).filter((run) => known.includes(run));
  const toggle = (id: string) =>
    select(selected.includes(id) ? selected.filter((run) => run !== id) : [...selected, id]);
  const left = unreadOf(value);
  const unread = left ? `; ${number(left)} are being read` : "";
  const word = filter.toLowerCase();
  const rows = value.runs.filter(({ id, recipe, model }) => `${id} ${recipe} ${model}`.toLowerCase().includes(word));
  const progress = value.runs
    .map(({ id, state, step }) => (selected.includes(id) ? `${id} ${state} ${step}` : ""))
    .join();
  const actions = (
    <>
      {known.length > 1 && (
        <button onClick={() => select(selected.length ? [] : known)}>
          {selected.length ? "Select none" : "Compare all"}
        </button>
      )}
      <Filter value={filter} label="Filter runs" onChange={setFilter} />
    </>
  );
  return (
    <>
      <h1 class="hidden">Runs</h1>
      <Panel title={`${count(value.runs.length, "run")}${unread}`} actions={actions}>
        <DataTable
          label="Runs"
          rows={rows}
          columns={columns(selected, toggle)}
          id={({ id }) => id}
          onSpace={({ id, state }) => state !== "damaged" && toggle(id)}
          href={({ id }) => link(["run", id])}
          sort="-started"
          height="min(50vh, 460px)"
          empty={value.runs.length ? "No run fits the filter." : "There are no runs in this folder."}
        />
        {known.length > 1 && !selected.length && (
          <p class="muted remark">Select runs to compare their curves and configurations.</p>
        )}
      </Panel>
      {selected.length > 0 && <Comparison runs={selected} fresh={progress} />}
    </>
  );
}

function columns(selected: string[], toggle: (id: string) => void): Column<RunLine>[] {
  const all: Column<RunLine>[] = [
    {
      key: "selected",
      label: "",
      width: 40,
      value: ({ id }) => id,
      show: ({ id, state }) => (
        <input
          type="checkbox"
          aria-label={`Compare ${id}`}
          disabled={state === "damaged"}
          checked={selected.includes(id)}
          style={selected.includes(id) ? { accentColor: series(selected.indexOf(id)) } : {}}
          onChange={() => toggle(id)}
        />
      ),
    },
    {
      key: "id",
      label: "Run",
      width: 235, // default names have 25 characters, of which the last four tell runs apart
      value: ({ id }) => id,
      show: ({ id }) => (
        <strong>
          <Clipped text={id} />
        </strong>
      ),
    },
    {
      key: "state",
      label: "State",
      width: 86,
      value: ({ state }) => state,
      show: ({ state, problem }) => (
        <span title={problem}>
          <StatePill state={state} />
        </span>
      ),
    },
    {
      key: "recipe",
      label: "Recipe",
      width: 150,
      value: ({ recipe }) => recipe,
      show: ({ recipe, problem, state }) =>
        state === "damaged" ? (
          <span class="bad">
            <Clipped text={problem} />
          </span>
        ) : (
          <Clipped text={recipe} />
        ),
    },
    {
      key: "model",
      label: "Model",
      width: 130,
      value: ({ model }) => model,
      show: ({ model }) => <Clipped text={model} />,
    },
    {
      key: "step",
      label: "Step",
      width: 84,
      numeric: true,
      value: ({ step }) => step,
      show: ({ step, steps, activity }) =>
        activity.startsWith("warm-up") ? (
          <span title={printable(activity)}>warm-up</span>
        ) : steps ? (
          `${number(step)} / ${number(steps)}`
        ) : (
          number(step)
        ),
    },
    {
      key: "reward",
      label: "Last reward",
      width: 88,
      numeric: true,
      value: ({ last }) => last["reward/mean"],
      show: ({ last }) => number(last["reward/mean"]),
    },
    {
      key: "accuracy",
      label: "Accuracy",
      width: 76,
      numeric: true,
      help: "Share of solved held-out tasks in the last evaluation",
      value: ({ last }) => last["evaluation/accuracy"],
      show: ({ last }) => number(last["evaluation/accuracy"]),
    },
    {
      key: "spark",
      label: "Reward",
      width: 104,
      help: "Mean reward over the steps",
      value: ({ last }) => last["reward/mean"],
      show: ({ id, spark }) => (
        <Spark values={spark} color={selected.includes(id) ? series(selected.indexOf(id)) : undefined} />
      ),
    },
    {
      key: "started",
      label: "Started",
      width: 124,
      numeric: true,
      value: ({ started }) => started,
      show: ({ started }) => date(started),
    },
  ];
  return narrowed(all, ["selected", "id", "state", "step", "reward"]);
}

function Comparison({ runs, fresh }: { runs: string[]; fresh: string }) {
  const question = JSON.stringify(runs);
  const metrics = useMetrics(runs, fresh);
  const infos = useAnswer((signal) => Promise.all(runs.map((run) => api.run(run, signal))), question);
  const found = useAnswer((signal) => Promise.all(runs.map((run) => api.findings(run, signal))), question, fresh);
  const problem = metrics.problem ?? infos.problem ?? found.problem;
  const lines: Line[] = runs.map((run, index) => ({ run, color: series(index), rows: metrics.value?.[index] ?? [] }));
  return (
    <>
      {problem && <ProblemBox problem={problem} />}
      {metrics.value ? <Curves lines={lines} /> : !problem && <Loading />}
      <div class="sides">
        {infos.value && runs.length > 1 && (
          <Panel title="Differences of the configuration">
            <Differences runs={infos.value} />
          </Panel>
        )}
        {metrics.value && (
          <Panel title="Time and memory of the phases">
            <Phases lines={lines} />
          </Panel>
        )}
      </div>
      <Panel title="Findings">
        {runs.map((run, index) => (
          <div key={run} class="by-run">
            <h3 style={{ color: series(index) }}>{printable(run)}</h3>
            {found.value && infos.value ? (
              <Findings
                run={run}
                findings={found.value[index]?.findings ?? []}
                steps={infos.value[index]?.step ?? 0}
                hasStep={(step) =>
                  isStored(run, "train", step) &&
                  !!infos.value?.[index]?.files.some((file) => file.step === step && file.purpose === "train")
                }
              />
            ) : (
              <Loading />
            )}
          </div>
        ))}
      </Panel>
    </>
  );
}

function Differences({ runs }: { runs: Run[] }) {
  const keys = [...new Set(runs.flatMap(({ config }) => Object.keys(config)))];
  const differing = keys.filter((key) => key !== "name" && new Set(runs.map(({ config }) => config[key])).size > 1);
  if (!differing.length) return <p class="muted">The configurations are equal.</p>;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Differences">
      <table class="differences">
        <thead>
          <tr>
            <th scope="col">Key</th>
            {runs.map(({ id }, index) => (
              <th key={id} scope="col" style={{ color: series(index) }}>
                {printable(id)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {differing.map((key) => (
            <tr key={key}>
              <th scope="row">
                <code>{printable(key)}</code>
              </th>
              {runs.map(({ id, config }) => (
                <td key={id}>
                  {config[key] === undefined ? <span class="muted">–</span> : <code>{printable(config[key])}</code>}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
