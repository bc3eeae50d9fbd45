// Numbers by decision as small lines with a shared cursor.
import type { Num, Series } from "../api";
import { series as colorOf } from "../colors";
import { number, printable } from "../format";

const HEIGHT = 84;
/** Values at the cursor that are shown as text. */
const TOLD = 8;

interface CurvesProps {
  series: Series[];
  place: number;
  size: number;
  onMove: (place: number) => void;
}

export function Curves({ series, place, size, onMove }: CurvesProps) {
  return (
    <div class="traces">
      {series.map((one) => (
        <Curve series={one} place={place} size={size} onMove={onMove} key={one.name} />
      ))}
    </div>
  );
}

function Curve({ series, place, size, onMove }: { series: Series } & Omit<CurvesProps, "series">) {
  const numbers = series.values.flat().filter((value) => value !== null);
  const low = numbers.reduce((one, other) => Math.min(one, other), Infinity);
  const high = numbers.reduce((one, other) => Math.max(one, other), -Infinity);
  const width = Math.max(1, size - 1);
  const dimensions = series.values[0]?.length ?? 0;
  const y = (value: number) => HEIGHT - 4 - ((value - low) / (high - low || 1)) * (HEIGHT - 8);
  const move = (event: PointerEvent & { currentTarget: SVGSVGElement }) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const share = event.offsetX / event.currentTarget.clientWidth;
    onMove(Math.min(size - 1, Math.max(0, Math.round(share * width))));
  };
  const row = series.values[place] ?? [];
  return (
    <figure class="trace">
      <figcaption>
        <span>{printable(series.name)}</span>
        <span class="told">
          {row.slice(0, TOLD).map((value, index) => (
            <span style={{ color: colorOf(index) }} key={index}>
              {number(value)}
            </span>
          ))}
          {row.length > TOLD && <span class="muted">and {row.length - TOLD} more</span>}
        </span>
      </figcaption>
      <div class="plot">
        <span class="high">{number(high)}</span>
        <span class="low">{number(low)}</span>
        <svg
          viewBox={`0 0 ${width} ${HEIGHT}`}
          preserveAspectRatio="none"
          role="img"
          aria-label={`${series.name} by decision, from ${number(low)} to ${number(high)}`}
          onPointerDown={move}
          onPointerMove={move}
        >
          {Array.from({ length: dimensions }, (_, index) => (
            <path d={pathOf(series.values, index, y)} style={{ stroke: colorOf(index) }} key={index} />
          ))}
          <line class="cursor" x1={place} x2={place} y1={0} y2={HEIGHT} />
        </svg>
      </div>
    </figure>
  );
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
