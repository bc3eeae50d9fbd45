// Every token of a segment, coloured by a column.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { choose, useAddress } from "../address";
import { api, type SegmentTokens } from "../api";
import { useAnswer } from "../data";
import { count, number, printable } from "../format";
import { useKeys } from "../keyboard";
import { Loading, Panel, ProblemBox } from "../ui";
import { columnNames, endsOf, extremesOf, scaleOf, titleOf, type Scale } from "./columns";
import { placeIn } from "./segments";
import { Strip } from "./strip";
import { shownText, TokenBlock, BLOCK } from "./token_block";
import { TokenCard } from "./token_card";

export interface Place {
  run: string;
  purpose: string;
  step: number;
  group: number;
  sibling: number;
}

export function TokensView({ run, purpose, step, group, sibling, isControl }: Place & { isControl: boolean }) {
  const { query } = useAddress();
  const question = ["tokens", run, purpose, step, group, sibling].join("/");
  const { value, problem } = useAnswer(
    (signal) => api.tokens(run, purpose, step, group, sibling, signal),
    question,
  );
  if (problem) return <ProblemBox problem={problem} />;
  if (!value) return <Loading />;
  const chosen = placeIn(value.segments, query.segment);
  const tokens = value.segments[chosen];
  if (!tokens?.ids.length) return <p class="nothing">This trajectory has no tokens.</p>;
  const title = isControl
    ? count(tokens.trained.filter(Boolean).length, "decision")
    : count(tokens.ids.length, "token");
  return (
    <Panel title={title} actions={<SegmentTabs count={value.segments.length} chosen={chosen} />}>
      {value.missing && <p class="hint">{printable(value.missing)}</p>}
      <SegmentView tokens={tokens} isControl={isControl} key={`${question}/${chosen}`} />
    </Panel>
  );
}

function SegmentTabs({ count: segments, chosen }: { count: number; chosen: number }) {
  if (segments < 2) return null;
  return (
    <label class="choice">
      Segment
      <select value={chosen} onChange={(event) => choose({ segment: event.currentTarget.value, token: undefined })}>
        {Array.from({ length: segments }, (_, index) => (
          <option value={index} key={index}>
            {index + 1} of {segments}
          </option>
        ))}
      </select>
    </label>
  );
}

function SegmentView({ tokens, isControl }: { tokens: SegmentTokens; isControl: boolean }) {
  const { query } = useAddress();
  const names = columnNames(tokens);
  const column = names.includes(query.color ?? "") ? query.color! : names[0]!;
  const scale = useMemo(() => scaleOf(tokens, column), [tokens, column]);
  const box = useRef<HTMLDivElement>(null);
  const [active, setActive] = useChosenToken(tokens.ids.length);
  const [hovered, setHovered] = useState(-1);
  // The same elements as before are not compared again, so moving over tokens costs nothing.
  const blocks = useMemo(
    () =>
      Array.from({ length: Math.ceil(tokens.ids.length / BLOCK) }, (_, index) => (
        <TokenBlock tokens={tokens} isControl={isControl} scale={scale} start={index * BLOCK} key={index} />
      )),
    [tokens, scale],
  );
  const element = (position: number) => box.current?.querySelector<HTMLElement>(`[data-token="${position}"]`);
  const move = (position: number) => {
    const next = Math.min(tokens.ids.length - 1, Math.max(0, position));
    setActive(next);
    setHovered(-1);
    box.current?.focus({ preventScroll: true });
  };
  const before = useRef(-1);
  useEffect(() => {
    const shown = element(active);
    shown?.classList.add("active");
    shown?.scrollIntoView({ block: Math.abs(active - before.current) > 1 ? "center" : "nearest" });
    before.current = active;
    return () => shown?.classList.remove("active");
  }, [active]);
  useEffect(() => {
    const pressed = ({ target }: Event) => {
      if (!(target instanceof Element && target.closest(".token, .token-controls, .strip"))) setActive(-1);
    };
    addEventListener("pointerdown", pressed);
    return () => removeEventListener("pointerdown", pressed);
  }, []);
  const what = isControl ? "decision" : "token";
  useExtremes(scale, what, active, move);
  useKeys([{ key: "Escape", does: `close the ${what}`, press: () => setActive(-1) }]);
  const press = (event: KeyboardEvent) => {
    const to = { ArrowLeft: active - 1, ArrowRight: active + 1, Home: 0, End: tokens.ids.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  };
  const positionOf = (event: Event) => {
    const found = event.target instanceof HTMLElement ? event.target.dataset.token : undefined;
    return found === undefined ? -1 : Number(found);
  };
  const told = hovered >= 0 ? hovered : active;
  return (
    <>
      <div class="token-controls">
        <ColumnChoice names={names} column={column} />
        <Legend scale={scale} column={column} tokens={tokens} isControl={isControl} onJump={move} />
      </div>
      <Strip scale={scale} trained={tokens.trained} onJump={move} />
      <div
        ref={box}
        class="tokens"
        tabIndex={0}
        role="application"
        aria-label={`${isControl ? "Decisions" : "Tokens"}. Left and right arrow move between them.`}
        onMouseOver={(event) => setHovered(positionOf(event))}
        onMouseLeave={() => setHovered(-1)}
        onClick={(event) => positionOf(event) >= 0 && setActive(positionOf(event))}
        onScroll={() => setHovered(-1)}
        onKeyDown={press}
      >
        {blocks}
      </div>
      <TokenCard
        tokens={tokens}
        position={told}
        anchor={told >= 0 ? element(told) : null}
        column={column}
        isControl={isControl}
      />
    </>
  );
}

/** Browsers limit how often a page changes its address, and a key that is held moves faster. */
const ADDRESS_MS = 200;

/** The position that the address names, which follows it; -1 for none. */
function useChosenToken(size: number): [number, (position: number) => void] {
  const { token } = useAddress().query;
  const known = useRef<string>();
  const [active, setActive] = useState(-1);
  useEffect(() => {
    if (token === known.current) return;
    known.current = token;
    setActive(token !== undefined && /^\d+$/.test(token) && Number(token) < size ? Number(token) : -1);
  }, [token]);
  useEffect(() => {
    const timer = setTimeout(() => {
      const next = active < 0 ? undefined : String(active);
      if (next === known.current) return;
      known.current = next;
      choose({ token: next });
    }, ADDRESS_MS);
    return () => clearTimeout(timer);
  }, [active]);
  return [active, setActive];
}

function useExtremes(scale: Scale, what: string, active: number, move: (position: number) => void): void {
  const extremes = useMemo(() => extremesOf(scale), [scale]);
  const next = () => move(extremes.find((position) => position > active) ?? extremes[0] ?? 0);
  const previous = () => move(extremes.filter((position) => position < active).at(-1) ?? extremes.at(-1) ?? 0);
  useKeys([
    { key: "n", does: `next ${what} that stands out`, press: next },
    { key: "p", does: `previous ${what} that stands out`, press: previous },
  ]);
}

function ColumnChoice({ names, column }: { names: string[]; column: string }) {
  return (
    <label class="choice">
      Colour
      <select value={column} onChange={(event) => choose({ color: event.currentTarget.value })}>
        {names.map((name) => (
          <option value={name} key={name}>
            {printable(titleOf(name))}
          </option>
        ))}
      </select>
    </label>
  );
}

const LEGEND_STEPS = 21;

interface LegendProps {
  scale: Scale;
  column: string;
  tokens: SegmentTokens;
  isControl: boolean;
  onJump: (position: number) => void;
}

function Legend({ scale, column, tokens, isControl, onJump }: LegendProps) {
  const ends = useMemo(() => (column === "mask" ? [] : endsOf(scale)), [scale]);
  const steps = Array.from(
    { length: LEGEND_STEPS },
    (_, index) => scale.low + ((scale.high - scale.low) * index) / (LEGEND_STEPS - 1),
  );
  return (
    <div class="legend">
      <span class="scale" role="img" aria-label={`Scale from ${number(scale.low)} to ${number(scale.high)}`}>
        <span class="end">
          {scale.least < scale.low && "≤ "}
          {number(scale.low)}
        </span>
        <span class="colors">
          {steps.map((value) => (
            <span style={{ backgroundColor: scale.color(value) ?? "transparent" }} key={value} />
          ))}
        </span>
        <span class="end">
          {scale.most > scale.high && "≥ "}
          {number(scale.high)}
        </span>
      </span>
      {ends.map(({ name, position }) => (
        <button type="button" class="jump" onClick={() => onJump(position)} key={name}>
          {name}: {isControl ? `decision ${position}` : <code>{shownText(tokens, position).text}</code>}{" "}
          {number(scale.values[position])}
        </button>
      ))}
      <span>{scale.explains}</span>
      {!isControl && (
        <span>
          The policy wrote the <span class="token trained">underlined</span> tokens.
        </span>
      )}
      <span>
        <kbd>n</kbd> and <kbd>p</kbd> go to {isControl ? "decisions" : "tokens"} that stand out.
      </span>
    </div>
  );
}
