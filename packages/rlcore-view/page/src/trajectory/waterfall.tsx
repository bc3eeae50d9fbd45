// How long the parts of a trajectory took.
import { useState } from "preact/hooks";
import type { Time } from "../api";
import { printable, seconds } from "../format";

/** Rows that are shown at first. */
const SHOWN = 100;

/** Kinds with a colour of their own. */
const COLORED = new Set(["turn", "tool", "cell", "request", "reward"]);

export function Waterfall({ times }: { times: Time[] }) {
  const [all, setAll] = useState(false);
  const end = times.reduce((latest, time) => Math.max(latest, time.start + time.seconds), 1e-9);
  const ordered = [...times].sort((one, other) => one.start - other.start || other.seconds - one.seconds);
  const share = (value: number) => `${(value / end) * 100}%`;
  return (
    <div class="waterfall" role="table" aria-label="Times">
      <div class="scale" role="presentation">
        <span />
        <span class="ends">
          <span>0</span>
          <span>{seconds(end)}</span>
        </span>
        <span />
      </div>
      {(all ? ordered : ordered.slice(0, SHOWN)).map((time, index) => (
        <div role="row" key={index}>
          <span class="what" role="cell" title={printable(`${time.kind} ${time.name}`)}>
            {printable(time.kind.replaceAll("_", " "))} <span class="muted">{printable(time.name)}</span>
          </span>
          <span class="lane" role="presentation">
            <span
              class={`bar ${COLORED.has(time.kind) ? time.kind : "other"}`}
              style={{ left: share(time.start), width: share(time.seconds) }}
            />
          </span>
          <span class="took" role="cell">
            {seconds(time.seconds)}
          </span>
        </div>
      ))}
      {!all && ordered.length > SHOWN && (
        <button type="button" class="more" onClick={() => setAll(true)}>
          Show all {ordered.length.toLocaleString("en")} times
        </button>
      )}
    </div>
  );
}
