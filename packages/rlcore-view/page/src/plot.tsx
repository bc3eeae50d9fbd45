// A plot of one metric with a line for each run.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { resolved } from "./colors";
import { gibibytes, number, printable, seconds } from "./format";
import { type Line, smoothed, valuesOf } from "./metrics";
import { useDark } from "./theme";

interface PlotProps {
  metric: string;
  lines: Line[];
  /** Weight of the last values in the moving average; 0 draws the values. */
  smoothing: number;
  /** Called with a step that was clicked. */
  onStep?: (step: number) => void;
}

const HEIGHT_PX = 150;
/** Up to this number of values, each is drawn as a dot. */
const MOST_DOTS = 30;
/** A pointer that moved less between press and release has clicked. */
const CLICK_PX = 4;
const FONT = "11px system-ui, sans-serif";

export function Plot({ metric, lines, smoothing, onStep }: PlotProps) {
  const dark = useDark();
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const clicked = useRef(onStep);
  clicked.current = onStep;
  const [at, setAt] = useState<number | null>(null);
  const values = useMemo(() => lines.map(({ rows }) => valuesOf(rows, metric)), [lines, metric]);
  const data = useMemo(() => aligned(values, smoothing), [values, smoothing]);
  const kinds = lines.map(({ color, run }) => `${color} ${run}`).join();

  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new uPlot(options(lines, smoothing > 0, element.clientWidth), data, element);
    made.hooks.setCursor = [({ cursor }) => setAt(cursor.idx ?? null)];
    plot.current = made;
    listenForClicks(made, (step) => clicked.current?.(step));
    const sizes = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    sizes.observe(element);
    return () => {
      sizes.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [metric, kinds, smoothing > 0, dark]);
  useEffect(() => {
    const made = plot.current;
    if (!made || made.data === data) return;
    const steps = made.data[0];
    const { min, max } = made.scales["x"] ?? {};
    const zoomed = (min ?? -Infinity) > (steps[0] ?? 0) || (max ?? Infinity) < (steps.at(-1) ?? 0);
    made.setData(data, !zoomed);
  }, [data]);

  const step = at === null ? undefined : data[0][at];
  return (
    <figure class={onStep ? "curve clickable" : "curve"}>
      <figcaption>
        <strong title={metric}>{printable(metric)}</strong>
        <span class="readout">
          {step !== undefined && <span class="muted">step {step}</span>}
          {lines.map(({ run, color }, index) => (
            <span key={run} style={{ color }} title={run}>
              {value(metric, (step === undefined ? last(values[index]) : values[index]?.get(step)) ?? null)}
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={place} role="img" aria-label={described(metric, lines, values)} style={{ height: `${HEIGHT_PX}px` }} />
    </figure>
  );
}

function value(metric: string, found: number | null): string {
  if (metric.startsWith("memory/")) return gibibytes(found);
  return metric.startsWith("time/") ? seconds(found) : number(found);
}

function last(values: Map<number, number> | undefined): number | undefined {
  return values && [...values.values()].at(-1);
}

function described(metric: string, lines: Line[], values: Map<number, number>[]): string {
  const each = lines.map(({ run }, index) => {
    const known = [...(values[index]?.values() ?? [])];
    if (!known.length) return `${run}: no values`;
    return `${run}: ${known.length} values from ${number(known[0])} to ${number(known.at(-1))}`;
  });
  return `${metric}. ${each.join("; ")}`;
}

/** Steps of all runs, then for each run its values, and with smoothing its moving average. */
function aligned(values: Map<number, number>[], smoothing: number): uPlot.AlignedData {
  const steps = [...new Set(values.flatMap((each) => [...each.keys()]))].sort((left, right) => left - right);
  const columns = values.flatMap((each) => {
    const raw = steps.map((step) => each.get(step) ?? null);
    return smoothing > 0 ? [raw, smoothed(raw, smoothing)] : [raw];
  });
  return [steps, ...columns];
}

function options(lines: Line[], smooth: boolean, width: number): uPlot.Options {
  const muted = resolved("var(--muted)");
  const grid = { stroke: resolved("var(--border)"), width: 1 };
  const axis = { stroke: muted, grid, ticks: { show: false }, font: FONT };
  const dots = (plot: uPlot, index: number) =>
    (plot.data[index] ?? []).filter((found) => typeof found === "number").length <= MOST_DOTS;
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    padding: [8, 10, 0, 0],
    cursor: {
      sync: { key: "metrics", scales: ["x", null] },
      y: false,
      points: { size: 6 },
      drag: { x: true, y: false },
    },
    scales: { x: { time: false }, y: { range: padded } },
    axes: [
      {
        ...axis,
        size: 24,
        gap: 2,
        space: 50,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000],
      },
      { ...axis, size: 50, gap: 4, space: 28, values: (_, ticks) => ticks.map(short) },
    ],
    series: [
      {},
      ...lines.flatMap(({ color, run }) => {
        const stroke = resolved(color);
        const line = { label: run, stroke, width: 1.75, spanGaps: true, points: { show: dots, size: 4, fill: stroke } };
        return smooth ? [{ ...line, width: 1, alpha: 0.3, points: { show: false } }, line] : [line];
      }),
    ],
  };
}

/** A constant value is in the middle, and values that differ have a margin. */
function padded(_: uPlot, low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const margin = high > low ? (high - low) * 0.08 : Math.abs(high) * 0.5 || 1;
  return [low - margin, high + margin];
}

function short(tick: number): string {
  const size = Math.abs(tick);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return tick.toExponential(2).replace(/\.?0*e\+?/, "e");
  if (size >= 1e4) return `${+(tick / 1000).toPrecision(4)}k`;
  return String(+tick.toPrecision(6));
}

function listenForClicks(plot: uPlot, clicked: (step: number) => void): void {
  let pressedAt = 0;
  plot.over.addEventListener("pointerdown", (event) => (pressedAt = event.clientX));
  plot.over.addEventListener("click", (event) => {
    const index = plot.cursor.idx;
    const step = typeof index === "number" ? plot.data[0][index] : undefined;
    if (step !== undefined && Math.abs(event.clientX - pressedAt) < CLICK_PX) clicked(step);
  });
}
