// Bars of which a click chooses the trajectories that they count.
import type { Row } from "./api";
import { number, printable } from "./format";

/** Trajectories that a bar counts, as text for the address: a column and a range of numbers, or a column and a word. */
export interface Pick {
  column: string;
  low?: number;
  high?: number;
  word?: string;
}

export function parsePick(text: string | undefined): Pick | null {
  const [column, kind, first, second] = (text ?? "").split("|");
  if (!column || first === undefined) return null;
  if (kind === "is") return { column: decodeURIComponent(column), word: decodeURIComponent(first) };
  return { column: decodeURIComponent(column), low: Number(first), high: Number(second) };
}

export function printPick({ column, low, high, word }: Pick): string {
  const name = encodeURIComponent(column);
  return word === undefined ? `${name}|in|${low}|${high}` : `${name}|is|${encodeURIComponent(word)}`;
}

/** The value of a column of a row: "tokens", "reward", "rewards/ID", "stop" and so on. */
export function valueOf(row: Row, column: string): string | number | null {
  if (column.startsWith("rewards/")) return row.rewards[column.slice(8)] ?? null;
  if (column.startsWith("metrics/")) return row.metrics[column.slice(8)] ?? null;
  if (column === "failure") return failureOf(row);
  const value = row[column as keyof Row];
  return typeof value === "string" || typeof value === "number" ? value : null;
}

/** The first line of a failure without its numbers, so that equal failures count together. */
function failureOf({ failure, reward }: Row): string | null {
  if (failure) return (failure.split("\n", 1)[0] ?? "").replace(/\d+/g, "N").slice(0, 120);
  return reward === null ? "without a failure" : null;
}

export function fits(row: Row, { column, low = -Infinity, high = Infinity, word }: Pick): boolean {
  const value = valueOf(row, column);
  if (word !== undefined) return value === word;
  return typeof value === "number" && value >= low && value <= high;
}

export interface Bar {
  low: number;
  high: number;
  count: number;
}

const BARS = 24;

/** A bar for each value if there are few, otherwise ranges of equal width. */
export function barsOf(values: number[]): Bar[] {
  const distinct = [...new Set(values)].sort((left, right) => left - right);
  if (distinct.length <= 12) {
    return distinct.map((value) => ({
      low: value,
      high: value,
      count: values.filter((each) => each === value).length,
    }));
  }
  const low = distinct[0] ?? 0;
  const width = ((distinct.at(-1) ?? 0) - low) / BARS;
  const bars: Bar[] = Array.from({ length: BARS }, () => ({ low: Infinity, high: -Infinity, count: 0 }));
  for (const value of values) {
    const bar = bars[Math.min(BARS - 1, Math.floor((value - low) / width))];
    if (!bar) continue;
    // The range of a bar is that of its values, so that a value at an edge belongs to one bar only.
    bar.low = Math.min(bar.low, value);
    bar.high = Math.max(bar.high, value);
    bar.count += 1;
  }
  return bars;
}

interface BarsProps {
  title: string;
  rows: Row[];
  column: string;
  pick: Pick | null;
  onPick: (pick: Pick | null) => void;
}

const HEIGHT = 72;

/** An "optional" histogram is left out if all values are equal. */
export function Histogram({ title, rows, column, pick, onPick, optional = false }: BarsProps & { optional?: boolean }) {
  const values = rows.map((row) => valueOf(row, column)).filter((value) => typeof value === "number");
  if (!values.length || (optional && new Set(values).size === 1)) return null;
  const bars = barsOf(values);
  const most = Math.max(...bars.map(({ count }) => count));
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return (
    <figure class="histogram">
      <figcaption title={title}>
        <strong>{printable(title)}</strong>{" "}
        <span class="muted">
          mean {number(mean)}
          {values.length < rows.length && `, ${number(values.length)} values`}
        </span>
      </figcaption>
      <div class="bars" role="group" aria-label={`Histogram of ${title}`} style={{ height: `${HEIGHT}px` }}>
        {bars.map(({ low, high, count }, index) => {
          const range = low === high ? number(low) : `${number(low)} to ${number(high)}`;
          const pressed = pick?.column === column && pick.low === low && pick.high === high;
          return (
            <button
              key={index}
              aria-pressed={pressed}
              disabled={!count}
              title={count ? `${range}: ${number(count)}` : undefined}
              aria-label={count ? `${range}: ${count} trajectories` : "no trajectories"}
              onClick={() => onPick(pressed ? null : { column, low, high })}
            >
              <i style={{ height: `${count && Math.max(2, (count / most) * HEIGHT)}px` }} />
            </button>
          );
        })}
      </div>
      <div class="range muted">
        <span>{number(bars[0]?.low)}</span>
        {bars.length > 1 && <span>{number(bars.at(-1)?.high)}</span>}
      </div>
    </figure>
  );
}

const MOST_WORDS = 8;

/** Bars beside words, such as the reasons of a stop. */
export function Words({
  title,
  rows,
  column,
  pick,
  onPick,
  show = (word) => word,
}: BarsProps & { show?: (word: string) => string }) {
  const counts = new Map<string, number>();
  for (const row of rows) {
    const word = valueOf(row, column);
    if (typeof word === "string" && word) counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const isSame = counts.size === 1 && [...counts.values()][0] === rows.length;
  if (!counts.size || isSame) return null;
  const sorted = [...counts].sort(([, left], [, right]) => right - left);
  const most = sorted[0]?.[1] ?? 1;
  return (
    <figure class="words">
      <figcaption>
        <strong>{title}</strong>
      </figcaption>
      {sorted.slice(0, MOST_WORDS).map(([word, found]) => {
        const pressed = pick?.column === column && pick.word === word;
        return (
          <button
            key={word}
            aria-pressed={pressed}
            onClick={() => onPick(pressed ? null : { column, word })}
            title={printable(show(word))}
          >
            <span class="word">{printable(show(word))}</span>
            <span class="track">
              <i style={{ width: `${(100 * found) / most}%` }} />
            </span>
            <span class="numeric">{number(found)}</span>
          </button>
        );
      })}
      {sorted.length > MOST_WORDS && <p class="muted">and {sorted.length - MOST_WORDS} more</p>}
    </figure>
  );
}
