// The rewards of one task over the steps.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { go, link } from "./address";
import type { Row } from "./api";
import { count, number } from "./format";
import { Panel } from "./ui";

const HEIGHT = 150;
const LEFT = 44;
const RIGHT = 12;
const BOTTOM = 22;
const TOP = 10;
const PURPOSES = ["train", "evaluation"] as const;

/** Rows of a step with the same reward. */
interface Dot {
  row: Row;
  reward: number;
  rows: number;
}

export function TaskCurve({ run, rows }: { run: string; rows: Row[] }) {
  const dots = dotsOf(rows);
  const [first, last] = extent(dots.map(({ row }) => row.step));
  if (!(first < last)) return null;
  const purposes = PURPOSES.filter((purpose) => dots.some(({ row }) => row.purpose === purpose));
  const legend = (
    <ul class="taskcurve-legend">
      {purposes.map((purpose) => (
        <li key={purpose} class={purpose}>
          {purpose}
        </li>
      ))}
    </ul>
  );
  return (
    <Panel title="Reward of this task over the steps" actions={purposes.length > 1 && legend}>
      <Drawing run={run} dots={dots} purposes={purposes} first={first} last={last} />
    </Panel>
  );
}

interface DrawingProps {
  run: string;
  dots: Dot[];
  purposes: Row["purpose"][];
  first: number;
  last: number;
}

function Drawing({ run, dots, purposes, first, last }: DrawingProps) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(() => setWidth(box.current?.clientWidth ?? 0));
    sizes.observe(box.current!);
    return () => sizes.disconnect();
  }, []);
  const [low, high] = extent(dots.map(({ reward }) => reward));
  const most = Math.max(...dots.map(({ rows }) => rows));
  const x = (step: number) => LEFT + ((step - first) / (last - first)) * (width - LEFT - RIGHT);
  const y = (reward: number) =>
    HEIGHT - BOTTOM - (high > low ? (reward - low) / (high - low) : 0.5) * (HEIGHT - BOTTOM - TOP);
  return (
    <div ref={box} class="taskcurve">
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`Rewards from ${number(low)} to ${number(high)} in steps ${first} to ${last}`}
      >
        {[...new Set([low, high])].map((reward) => (
          <g key={reward}>
            <line x1={LEFT} x2={width} y1={y(reward)} y2={y(reward)} />
            <text x={LEFT - 10} y={y(reward) + 4} text-anchor="end">
              {number(reward)}
            </text>
          </g>
        ))}
        {[first, last].map((step) => (
          <text key={step} x={x(step)} y={HEIGHT - 4} text-anchor={step === first ? "start" : "end"}>
            step {step}
          </text>
        ))}
        {purposes.map((purpose) => (
          <polyline
            key={purpose}
            class={purpose}
            points={meansOf(dots.filter(({ row }) => row.purpose === purpose))
              .map(([step, mean]) => `${x(step)},${y(mean)}`)
              .join(" ")}
          />
        ))}
        {dots.map(({ row: { purpose, step, group, sibling }, reward, rows }) => (
          <circle
            key={`${purpose} ${step} ${reward}`}
            class={purpose}
            cx={x(step)}
            cy={y(reward)}
            r={2.5 + 3.5 * Math.sqrt(rows / most)}
            onClick={() => go(link(["run", run, purpose, step, group, sibling]))}
          >
            <title>{`${purpose} step ${step}: ${count(rows, "trajectory")} with reward ${number(reward)}`}</title>
          </circle>
        ))}
      </svg>
    </div>
  );
}

function dotsOf(rows: Row[]): Dot[] {
  const dots = new Map<string, Dot>();
  for (const row of rows) {
    if (row.reward === null) continue;
    const key = `${row.purpose} ${row.step} ${row.reward}`;
    const dot = dots.get(key);
    if (dot) dot.rows++;
    else dots.set(key, { row, reward: row.reward, rows: 1 });
  }
  return [...dots.values()];
}

function extent(values: number[]): [number, number] {
  return [Math.min(...values), Math.max(...values)];
}

/** Mean reward of each step, in the order of the steps. */
function meansOf(dots: Dot[]): [number, number][] {
  const steps = new Map<number, [sum: number, rows: number]>();
  for (const { row, reward, rows } of dots) {
    const [sum, before] = steps.get(row.step) ?? [0, 0];
    steps.set(row.step, [sum + reward * rows, before + rows]);
  }
  return [...steps].map(([step, [sum, rows]]): [number, number] => [step, sum / rows]).sort(([a], [b]) => a - b);
}
