// The state of a run as a coloured word, and its reward as a small line.
import type { Num, RunLine } from "./api";
import { type Kind, Pill } from "./ui";

const KINDS: Record<RunLine["state"], Kind> = {
  running: "accent",
  ended: "plain",
  stopped: "warn",
  failed: "bad",
  damaged: "bad",
  unread: "plain",
};

export function StatePill({ state }: { state: RunLine["state"] }) {
  return <Pill kind={KINDS[state]}>{state === "unread" ? "…" : state}</Pill>;
}

const WIDTH = 96;
const HEIGHT = 20;

export function Spark({ values, color }: { values: Num[]; color: string | undefined }) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return null;
  const low = Math.min(...known);
  const range = Math.max(...known) - low || 1;
  const points = values.flatMap((value, index) =>
    value === null
      ? []
      : [`${(index / (values.length - 1)) * (WIDTH - 4) + 2},${HEIGHT - 3 - ((value - low) / range) * (HEIGHT - 6)}`],
  );
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} role="img" aria-label="Reward over the steps">
      <polyline points={points.join(" ")} style={color ? { stroke: color } : {}} />
    </svg>
  );
}
