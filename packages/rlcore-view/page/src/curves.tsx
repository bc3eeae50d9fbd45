// Small plots of the chosen metrics, a line for each run.
import { choose, go, link, useAddress } from "./address";
import type { StepFile } from "./api";
import { count, printable } from "./format";
import { type Line, namesOf } from "./metrics";
import { Plot } from "./plot";
import { Filter, Panel } from "./ui";

/** What is shown without a filter: of each entry the first metric that a run has. */
const DEFAULTS = [
  ["reward/mean", "loss"],
  ["evaluation/accuracy", "evaluation/reward", "evaluation/loss"],
  ["loss/total", "loss"],
  ["entropy/mean"],
  ["kl/mean", "kl/old"],
  ["logprob_gap/mean"],
  ["tokens/sampled"],
  ["time/step_s"],
];
/** The first entries, reward and evaluation, are shown also if all their values are equal. */
const ALWAYS = 2;
/** Plots of a filter that fits many metrics. */
const MOST_PLOTS = 48;

/** Names that contain any of the words of the filter. */
function chosen(names: string[], filter: string, lines: Line[]): string[] {
  const words = filter
    .toLowerCase()
    .split(/[\s,]+/)
    .filter(Boolean);
  if (words.length) return names.filter((name) => words.some((word) => name.toLowerCase().includes(word)));
  const standard = DEFAULTS.map((entry, index) =>
    entry.find((name) => names.includes(name) && (index < ALWAYS || !isFlat(lines, name))),
  );
  return standard.filter((name) => name !== undefined);
}

/** Whether all values are equal, of at least two. */
function isFlat(lines: Line[], name: string): boolean {
  const values = lines.flatMap(({ rows }) => rows).map((row) => row[name]).filter((value) => typeof value === "number");
  return values.length > 1 && values.every((value) => value === values[0]);
}

/** The first parts of the names, as suggestions for the filter. */
function families(names: string[]): string[] {
  const sizes = new Map<string, number>();
  for (const name of names) {
    const family = name.split("/", 1)[0] + "/";
    if (name.includes("/")) sizes.set(family, (sizes.get(family) ?? 0) + 1);
  }
  return [...sizes].filter(([, size]) => size > 1).map(([family]) => family);
}

/** "files" are the steps of the only run that is shown, to open one by a click on a plot. */
export function Curves({ lines, files = [] }: { lines: Line[]; files?: StepFile[] }) {
  const { query } = useAddress();
  const smoothing = Math.min(0.99, Math.max(0, Number(query["smooth"]) || 0));
  const names = namesOf(lines);
  const fitting = chosen(names, query["show"] ?? "", lines);
  const run = lines[0]?.run ?? "";
  const open = (metric: string) => (step: number) => {
    const purpose = metric.startsWith("evaluation/") ? "evaluation" : "train";
    if (files.some((file) => file.step === step && file.purpose === purpose)) go(link(["run", run, purpose, step]));
  };
  const actions = (
    <>
      <label class="slider">
        Smoothing
        <input
          type="range"
          min="0"
          max="0.99"
          step="0.01"
          value={smoothing}
          onInput={(event) => choose({ smooth: Number(event.currentTarget.value) || undefined })}
        />
        <output>{smoothing.toFixed(2)}</output>
      </label>
      <Filter value={query["show"] ?? ""} label="Filter metrics" onChange={(show) => choose({ show })} />
    </>
  );
  return (
    <Panel title="Curves" actions={actions}>
      {lines.length > 1 && <Legend lines={lines} />}
      <div class="chips" role="group" aria-label="Families of metrics">
        {families(names).map((family) => (
          <button
            key={family}
            class="chip"
            aria-pressed={query["show"] === family}
            onClick={() => choose({ show: query["show"] === family ? undefined : family })}
          >
            {printable(family.slice(0, -1))}
          </button>
        ))}
        <span class="muted">
          {fitting.length > MOST_PLOTS && `the first ${MOST_PLOTS} of `}
          {fitting.length} of {count(names.length, "metric")}
        </span>
      </div>
      <div class="plots">
        {fitting.slice(0, MOST_PLOTS).map((name) => (
          <Plot
            key={name}
            metric={name}
            lines={lines}
            smoothing={smoothing}
            onStep={files.length ? open(name) : undefined}
          />
        ))}
      </div>
    </Panel>
  );
}

function Legend({ lines }: { lines: Line[] }) {
  return (
    <ul class="colors-of-runs">
      {lines.map(({ run, color }) => (
        <li key={run}>
          <i style={{ background: color }} />
          <a href={link(["run", run])}>{printable(run)}</a>
        </li>
      ))}
    </ul>
  );
}
