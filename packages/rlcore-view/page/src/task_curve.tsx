// The rewards of one task over the steps.
import { go, link } from "./address";
import type { Row } from "./api";
import { number } from "./format";
import { Panel } from "./ui";

const WIDTH = 900;
const HEIGHT = 140;
const LEFT = 44;
const BOTTOM = 22;
const TOP = 10;

export function TaskCurve({ run, rows }: { run: string; rows: Row[] }) {
  const scored = rows.flatMap((row) => (row.reward === null ? [] : [{ ...row, reward: row.reward }]));
  if (!scored.length) return null;
  const [first, last] = extent(scored.map(({ step }) => step));
  const [low, high] = extent(scored.map(({ reward }) => reward));
  const x = (step: number) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - 12);
  const y = (reward: number) =>
    HEIGHT - BOTTOM - (high > low ? (reward - low) / (high - low) : 0.5) * (HEIGHT - BOTTOM - TOP);
  const means = meansOf(scored);
  return (
    <Panel title="Reward of this task over the steps">
      <div class="scroll">
        <svg
          class="taskcurve"
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          role="img"
          aria-label={`Rewards from ${number(low)} to ${number(high)} in steps ${first} to ${last}`}
        >
          {[...new Set([low, high])].map((reward) => (
            <g key={reward}>
              <line x1={LEFT} x2={WIDTH} y1={y(reward)} y2={y(reward)} />
              <text x={LEFT - 8} y={y(reward) + 4} text-anchor="end">
                {number(reward)}
              </text>
            </g>
          ))}
          {[...new Set([first, last])].map((step) => (
            <text key={step} x={x(step)} y={HEIGHT - 4} text-anchor={step === first ? "start" : "end"}>
              step {step}
            </text>
          ))}
          <polyline points={means.map(([step, mean]) => `${x(step)},${y(mean)}`).join(" ")} />
          {scored.map(({ purpose, step, group, sibling, reward }) => (
            <circle
              key={`${purpose} ${step} ${group} ${sibling}`}
              class={purpose}
              cx={x(step)}
              cy={y(reward)}
              r="4"
              onClick={() => go(link(["run", run, purpose, step, group, sibling]))}
            />
          ))}
        </svg>
      </div>
    </Panel>
  );
}

function extent(values: number[]): [number, number] {
  return [Math.min(...values), Math.max(...values)];
}

/** Mean reward of each step, in the order of the steps. */
function meansOf(rows: { step: number; reward: number }[]): [number, number][] {
  const steps = new Map<number, number[]>();
  for (const { step, reward } of rows) steps.set(step, [...(steps.get(step) ?? []), reward]);
  const means = [...steps].map(([step, rewards]): [number, number] => [
    step,
    rewards.reduce((sum, each) => sum + each, 0) / rewards.length,
  ]);
  return means.sort(([left], [right]) => left - right);
}
