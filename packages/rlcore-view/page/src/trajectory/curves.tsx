// Numbers by decision as lines with a shared cursor.
import { useMemo, useState } from "preact/hooks";
import type { Num, Series } from "../api";
import { series as colorOf } from "../colors";
import { number, printable } from "../format";

const HEIGHT = 160;
/** Dimensions that are drawn at first: more lines can hardly be told apart. */
const SHOWN = 6;
/** The others resemble the first and the fifth. */
const COLORS = [0, 1, 2, 3, 4, 7].map(colorOf);

interface CurvesProps {
  series: Series[];
  /** By the name of a series. Siblings share theirs, so that their curves can be compared. */
  ranges: Map<string, Range[]>;
  place: number;
  size: number;
  onMove: (place: number) => void;
}

export function Curves({ series, ranges, place, size, onMove }: CurvesProps) {
  return (
    <div class="traces">
      {series.map((one) => (
        <Curve
          series={one}
          ranges={ranges.get(one.name) ?? []}
          place={place}
          size={size}
          onMove={onMove}
          key={one.name}
        />
      ))}
    </div>
  );
}

interface CurveProps extends Omit<CurvesProps, "series" | "ranges"> {
  series: Series;
  ranges: Range[];
}

function Curve({ series, ranges, place, size, onMove }: CurveProps) {
  const [all, setAll] = useState(false);
  const [told, setTold] = useState(-1);
  const shown = all ? ranges.map((_, dimension) => dimension) : widest(ranges);
  const low = Math.min(...shown.map((dimension) => ranges[dimension]!.low));
  const high = Math.max(...shown.map((dimension) => ranges[dimension]!.high));
  const width = Math.max(1, size - 1);
  const y = (value: number) => HEIGHT - 4 - ((value - low) / (high - low || 1)) * (HEIGHT - 8);
  const move = (event: PointerEvent & { currentTarget: SVGSVGElement }) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const share = event.offsetX / event.currentTarget.clientWidth;
    onMove(Math.min(size - 1, Math.max(0, Math.round(share * width))));
  };
  const paths = useMemo(() => shown.map((dimension) => pathOf(series.values, dimension, y)), [series, ranges, all]);
  // Such as a reward that is only given at the end: a line at the border of an empty box says less than its value.
  if (low === high) {
    return (
      <p class="constant">
        {printable(series.name)} <span class="muted">always {number(low)}</span>
      </p>
    );
  }
  return (
    <figure class="trace">
      <figcaption>
        <span>{printable(series.name)}</span>
        {ranges.length > SHOWN && (
          <span>
            {!all && <span class="muted">the {SHOWN} with the largest range </span>}
            <button type="button" class="more" onClick={() => setAll(!all)}>
              {all ? `only ${SHOWN}` : `all ${ranges.length}`}
            </button>
          </span>
        )}
      </figcaption>
      <div class="plot">
        <span class="ends">
          <span>{number(high)}</span>
          <span>{number(low)}</span>
        </span>
        <svg
          viewBox={`0 0 ${width} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${series.name} by decision, from ${number(low)} to ${number(high)}`}
          class={shown.includes(told) ? "telling" : undefined}
          onPointerDown={move}
          onPointerMove={move}
        >
          {shown.map((dimension, index) => (
            <path
              d={paths[index]}
              class={dimension === told ? "told" : undefined}
              style={{ stroke: COLORS[index % COLORS.length] }}
              key={dimension}
            />
          ))}
          <line class="cursor" x1={place} x2={place} y1={0} y2={HEIGHT} />
        </svg>
      </div>
      <div class="names">
        {shown.map((dimension, index) => (
          <span onMouseEnter={() => setTold(dimension)} onMouseLeave={() => setTold(-1)} key={dimension}>
            <b style={{ color: COLORS[index % COLORS.length] }}>
              {ranges.length > 1 ? indexOf(dimension, series.shape) : "━"}
            </b>{" "}
            {number(series.values[place]?.[dimension])}
          </span>
        ))}
      </div>
    </figure>
  );
}

interface Range {
  low: number;
  high: number;
}

/** The range of each dimension, by the name of the series. */
export function rangesOf(series: Series[]): Map<string, Range[]> {
  const found = new Map<string, Range[]>();
  for (const { name, values } of series) {
    const ranges = found.get(name) ?? (values[0] ?? []).map((): Range => ({ low: Infinity, high: -Infinity }));
    found.set(name, ranges);
    for (const row of values) {
      ranges.forEach((range, dimension) => {
        const value = row[dimension] ?? null;
        if (value === null) return;
        range.low = Math.min(range.low, value);
        range.high = Math.max(range.high, value);
      });
    }
  }
  return found;
}

/** The dimensions with the largest range, in their order. */
function widest(ranges: Range[]): number[] {
  return ranges
    .map(({ low, high }, dimension) => ({ dimension, range: Math.max(0, high - low) }))
    .sort((one, other) => other.range - one.range)
    .slice(0, SHOWN)
    .map(({ dimension }) => dimension)
    .sort((one, other) => one - other);
}

/** The index of an entry of an array of rows, such as "2,5" for entry 33 of [4, 14]. */
function indexOf(entry: number, shape: number[]): string {
  const index = [...shape].reverse().map((size) => {
    const place = entry % size;
    entry = Math.floor(entry / size);
    return place;
  });
  return index.reverse().join(",");
}

function pathOf(rows: Num[][], dimension: number, y: (value: number) => number): string {
  let path = "";
  let isDrawing = false;
  rows.forEach((row, index) => {
    const value = row[dimension] ?? null;
    if (value !== null) path += `${isDrawing ? "L" : "M"}${index} ${y(value).toFixed(2)}`;
    isDrawing = value !== null;
  });
  return path;
}
