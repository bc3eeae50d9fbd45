// How long the parts of a trajectory took.
import { useState } from "preact/hooks";
import type { Time } from "../api";
import { printable, seconds } from "../format";

/** Rows that are shown at first. */
const SHOWN = 100;

const LABELS = new Map(
  Object.entries({
    queue: "waiting for a place",
    turn: "generation",
    engine_queue: "waiting for the engine",
    make: "environment",
    reset: "environment",
    step: "environment",
    cell: "code",
  }),
);
/** Kinds with a colour of their own. */
const COLORED = new Set(["turn", "tool", "cell", "request", "reward"]);
/** Kinds that contain others. Rewards run at the same time, so a row never contains one of its own kind. */
const CONTAINERS = new Set(["turn", "step", "tool", "reward"]);
/** The starts are rounded to a microsecond. */
const ROUNDING = 2e-6;

interface Line extends Time {
  label: string;
  detail: string;
  depth: number;
}

export function Waterfall({ times }: { times: Time[] }) {
  const [all, setAll] = useState(false);
  const end = times.reduce((latest, time) => Math.max(latest, time.start + time.seconds), 1e-9);
  const lines = linesOf(times);
  const share = (value: number) => `${(value / end) * 100}%`;
  return (
    <div class="waterfall" role="table" aria-label="Times">
      <Generation times={times} end={end} />
      <div class="scale" role="presentation">
        <span />
        <span class="ends">
          <span>0</span>
          <span>{seconds(end)}</span>
        </span>
        <span />
      </div>
      {(all ? lines : lines.slice(0, SHOWN)).map(({ kind, label, detail, depth, ...time }, index) => (
        <div role="row" key={index}>
          <span
            class="what"
            role="cell"
            title={printable(`${label} ${detail}`)}
            style={depth ? { paddingLeft: `${depth}em` } : undefined}
          >
            {printable(label)} <span class="muted">{printable(detail)}</span>
          </span>
          <span class="lane" role="presentation">
            <span
              class={`bar ${COLORED.has(kind) ? kind : "other"}`}
              style={{ left: share(time.start), width: share(time.seconds) }}
            />
          </span>
          <span class="took" role="cell">
            {seconds(time.seconds)}
          </span>
        </div>
      ))}
      {!all && lines.length > SHOWN && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show all {lines.length.toLocaleString("en")} times
        </button>
      )}
    </div>
  );
}

function Generation({ times, end }: { times: Time[]; end: number }) {
  const turns = times.filter(({ kind }) => kind === "turn");
  if (!turns.length) return null;
  const took = turns.reduce((sum, turn) => sum + turn.seconds, 0);
  return (
    <p>
      generation {seconds(took)} of {seconds(end)} ({Math.round((took / end) * 100)} %)
    </p>
  );
}

function linesOf(times: Time[]): Line[] {
  const several = times.filter(({ kind }) => kind === "turn").length > 1;
  const ordered = [...times].sort((one, other) => one.start - other.start || other.seconds - one.seconds);
  let open: Time[] = [];
  let turns = 0;
  return ordered.map((time) => {
    const { kind, name, start } = time;
    open = open.filter((other) => endOf(other) > start);
    const around = open.filter((other) => other.kind !== kind && endOf(other) + ROUNDING >= endOf(time));
    const depth = new Set(around.map((other) => other.kind)).size;
    if (CONTAINERS.has(kind)) open.push(time);
    if (kind === "turn") turns++;
    const label = LABELS.get(kind) ?? kind.replaceAll("_", " ");
    const detail = kind === "turn" && several ? String(turns) : label === "environment" ? kind : name;
    return { ...time, label, detail, depth };
  });
}

function endOf(time: Time): number {
  return time.start + time.seconds;
}
