// An episode of a control environment: a film of its pictures, and curves of its numbers, with one cursor.
import { useEffect, useState } from "preact/hooks";
import { mediaUrl, type Segment, type Series } from "../api";
import { printable } from "../format";
import { useKeys } from "../keyboard";
import { Curves } from "./curves";

const FRAMES_PER_SECOND = 10;

export function Robot({ run, segment }: { run: string; segment: Segment }) {
  const [cursor, setCursor] = useState(0);
  const size = decisionsOf(segment);
  const place = Math.min(cursor, size - 1);
  // The film plays without gaps if the browser has its pictures before.
  useEffect(() => {
    for (const frame of segment.series.flatMap((one) => one.frames)) new Image().src = mediaUrl(run, frame);
  }, [run, segment]);
  return (
    <div class="robot">
      <Player size={size} place={place} canPlay={hasFilm(segment)} onMove={setCursor} />
      <Episode run={run} segment={segment} place={place} onMove={setCursor} />
    </div>
  );
}

interface EpisodeProps {
  run: string;
  segment: Segment;
  /** The decision that is shown. */
  place: number;
  onMove: (place: number) => void;
}

export function Episode({ run, segment, place, onMove }: EpisodeProps) {
  const films = segment.series.filter((one) => one.frames.length);
  const numbers = segment.series.filter((one) => one.values.length);
  const curves = [...numbers.map((one) => chosenOnly(one, segment)), ...rewardsOf(segment)];
  return (
    <>
      {films.length > 0 && (
        <div class="films">
          {ordered(films).map((film) => (
            <Film run={run} film={film} place={place} key={film.name} />
          ))}
        </div>
      )}
      <Curves series={curves} place={place} size={decisionsOf(segment)} onMove={onMove} />
    </>
  );
}

/** An episode that was cut short has one more row: the state in which it was left, without an action. */
function chosenOnly(series: Series, segment: Segment): Series {
  if (series.name.startsWith("observation")) return series;
  const decisions = segment.turns.filter((turn) => turn.kind === "policy").length;
  return { ...series, values: series.values.slice(0, decisions) };
}

export function decisionsOf(segment: Segment): number {
  return Math.max(1, ...segment.series.map((one) => one.frames.length || one.values.length));
}

export function hasFilm(segment: Segment): boolean {
  return segment.series.some((one) => one.frames.length);
}

/** A prediction stands beside what it predicts. */
function ordered(films: Series[]): Series[] {
  const base = ({ name }: Series) => name.replace(/[._-]?predicted[._-]?/, "");
  return [...films].sort(
    (one, other) => base(one).localeCompare(base(other)) || one.name.length - other.name.length,
  );
}

function rewardsOf(segment: Segment): Series[] {
  const values = segment.turns.map((turn) => [turn.reward]);
  return values.some(([reward]) => reward !== null) ? [{ name: "reward", shape: [1], values, frames: [] }] : [];
}

function Film({ run, film, place }: { run: string; film: Series; place: number }) {
  const frame = film.frames[place];
  const address = frame && mediaUrl(run, frame);
  const predicted = film.name.includes("predicted");
  return (
    <figure class={predicted ? "film predicted" : "film"}>
      {address ? <img src={address} alt={`Decision ${place}`} /> : <p class="nothing">no picture</p>}
      <figcaption>
        {printable(film.name)}
        {predicted && <span class="muted"> (predicted)</span>}
      </figcaption>
    </figure>
  );
}

interface PlayerProps {
  size: number;
  place: number;
  canPlay: boolean;
  onMove: (place: number) => void;
}

export function Player({ size, place, canPlay, onMove }: PlayerProps) {
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return;
    if (place >= size - 1) return setPlaying(false);
    const timer = setTimeout(() => onMove(place + 1), 1000 / FRAMES_PER_SECOND);
    return () => clearTimeout(timer);
  }, [playing, place]);
  const play = () => {
    if (!playing && place >= size - 1) onMove(0);
    setPlaying(!playing);
  };
  useKeys([
    { key: "ArrowRight", does: "next decision", press: () => onMove(Math.min(size - 1, place + 1)) },
    { key: "ArrowLeft", does: "previous decision", press: () => onMove(Math.max(0, place - 1)) },
  ]);
  return (
    <div class="player">
      {canPlay && (
        <button type="button" onClick={play} aria-pressed={playing}>
          {playing ? "Pause" : "Play"}
        </button>
      )}
      <input
        type="range"
        min={0}
        max={size - 1}
        value={place}
        aria-label="Decision"
        onInput={(event) => onMove(event.currentTarget.valueAsNumber)}
      />
      <output>
        decision {place} of {size - 1}
      </output>
    </div>
  );
}
