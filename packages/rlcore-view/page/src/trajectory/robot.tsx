// An episode of a control environment: a film of its pictures, and curves of its numbers, with one cursor.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { mediaUrl, type Segment, type Series } from "../api";
import { count, printable } from "../format";
import { useKeys } from "../keyboard";
import { Curves, rangesOf } from "./curves";
import { Films, Note } from "./note";

const FRAMES_PER_SECOND = 10;

export function Robot({ run, segment }: { run: string; segment: Segment }) {
  const [cursor, setCursor] = useState(0);
  const size = statesOf(segment);
  const place = Math.min(cursor, size - 1);
  const ranges = useMemo(() => rangesOf(curvesOf(segment)), [segment]);
  const notes = segment.turns.filter((turn) => turn.kind === "policy").map((turn) => turn.note);
  // The film plays without gaps if the browser has its pictures before.
  useEffect(() => {
    for (const frame of segment.series.flatMap((one) => one.frames)) new Image().src = mediaUrl(run, frame);
  }, [run, segment]);
  return (
    <div class="robot">
      <Films run={run} films={notes.flatMap((note) => note?.films ?? [])} />
      <Player
        size={size}
        decisions={decisionsOf(segment)}
        place={place}
        canPlay={hasFilm(segment)}
        onMove={setCursor}
      />
      <Episode run={run} segment={segment} ranges={ranges} place={place} size={size} onMove={setCursor}>
        {notes[place] && <Note run={run} note={{ ...notes[place], films: [] }} />}
      </Episode>
    </div>
  );
}

interface EpisodeProps {
  run: string;
  segment: Segment;
  ranges: ReturnType<typeof rangesOf>;
  /** The decision that is shown. */
  place: number;
  /** States of the longest episode beside it. */
  size: number;
  onMove: (place: number) => void;
  /** What a plugin says about the decision. */
  children?: ComponentChildren;
}

export function Episode({ run, segment, ranges, place: wanted, size, onMove, children }: EpisodeProps) {
  const films = segment.series.filter((one) => one.frames.length);
  const curves = useMemo(() => curvesOf(segment), [segment]);
  const place = Math.min(wanted, statesOf(segment) - 1);
  return (
    <>
      {films.length > 0 && (
        <div class="films">
          {ordered(films).map((film) => (
            <Film run={run} film={film} place={place} key={film.name} />
          ))}
        </div>
      )}
      {children}
      <Curves series={curves} ranges={ranges} place={place} size={size} onMove={onMove} />
    </>
  );
}

export function curvesOf(segment: Segment): Series[] {
  const numbers = segment.series.filter((one) => one.values.length);
  return [...numbers.map((one) => chosenOnly(one, segment)), ...rewardsOf(segment)];
}

/** An episode that was cut short has one more row: the state in which it was left, without an action. */
function chosenOnly(series: Series, segment: Segment): Series {
  if (series.name.startsWith("observation")) return series;
  return { ...series, values: series.values.slice(0, decisionsOf(segment)) };
}

export function decisionsOf(segment: Segment): number {
  return segment.turns.filter((turn) => turn.kind === "policy").length;
}

export function statesOf(segment: Segment): number {
  return Math.max(1, ...segment.series.map((one) => one.frames.length || one.values.length));
}

export function hasFilm(segment: Segment): boolean {
  return segment.series.some((one) => one.frames.length);
}

/** Pictures of the same name stand beside each other, such as "observation/head" and "predicted/head". */
function ordered(films: Series[]): Series[] {
  const last = ({ name }: Series) => name.slice(name.lastIndexOf("/") + 1);
  return [...films].sort((one, other) => last(one).localeCompare(last(other)) || one.name.localeCompare(other.name));
}

function rewardsOf(segment: Segment): Series[] {
  const values = segment.turns.map((turn) => [turn.reward]);
  return values.some(([reward]) => reward !== null) ? [{ name: "reward", shape: [1], values, frames: [] }] : [];
}

function Film({ run, film, place }: { run: string; film: Series; place: number }) {
  const frame = film.frames[place];
  const address = frame && mediaUrl(run, frame);
  return (
    <figure class="film">
      {address ? <img src={address} alt={`Decision ${place}`} /> : <p class="nothing">no picture</p>}
      <figcaption>{printable(film.name)}</figcaption>
    </figure>
  );
}

interface PlayerProps {
  /** States that can be shown. */
  size: number;
  decisions: number;
  place: number;
  canPlay: boolean;
  onMove: (place: number) => void;
}

export function Player({ size, decisions, place, canPlay, onMove }: PlayerProps) {
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
        {place < decisions ? `decision ${place}` : "final state"} · {count(decisions, "decision")}
      </output>
    </div>
  );
}
