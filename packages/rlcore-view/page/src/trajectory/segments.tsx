// The segments of a trajectory: one, or two of them beside each other where its context was rewritten.
import { choose, useAddress } from "../address";
import type { Segment } from "../api";
import { count } from "../format";
import { Conversation, MessageBox } from "./messages";
import { Robot } from "./robot";

export function Segments({ run, segments }: { run: string; segments: Segment[] }) {
  const { query } = useAddress();
  if (!segments[0]) return <p class="nothing">This trajectory has no turns.</p>;
  if (segments.length < 2) return <SegmentView run={run} segment={segments[0]} before={0} />;
  const left = placeIn(segments, query.left);
  const right = placeIn(segments, query.right ?? String(left + 1));
  return (
    <div class="segments">
      {(["left", "right"] as const).map((side) => {
        const chosen = side === "left" ? left : right;
        return (
          <div class="segment" key={side}>
            <SegmentChoice segments={segments} chosen={chosen} onChoose={(place) => choose({ [side]: place })} />
            <SegmentView run={run} segment={segments[chosen]!} before={turnsOf(segments.slice(0, chosen))} />
          </div>
        );
      })}
    </div>
  );
}

/** A place of the address in a list, which may have any text. */
export function placeIn(list: unknown[], text: string | undefined): number {
  return Math.min(list.length - 1, Math.max(0, Math.trunc(Number(text)) || 0));
}

interface ChoiceProps {
  segments: Segment[];
  chosen: number;
  onChoose: (place: string) => void;
}

function SegmentChoice({ segments, chosen, onChoose }: ChoiceProps) {
  return (
    <label class="choice">
      Segment
      <select value={chosen} onChange={(event) => onChoose(event.currentTarget.value)}>
        {segments.map((segment, index) => (
          <option value={index} key={index}>
            {index + 1} of {segments.length}, {count(segment.tokens, "token")}
          </option>
        ))}
      </select>
    </label>
  );
}

function turnsOf(segments: Segment[]): number {
  return segments.flatMap((segment) => segment.turns).filter((turn) => turn.kind === "policy").length;
}

function SegmentView({ run, segment, before }: { run: string; segment: Segment; before: number }) {
  return (
    <>
      {segment.context.length > 0 && (
        <details class="context">
          <summary>{count(segment.context.length, "message")} repeated from before</summary>
          {segment.context.map((message, index) => (
            <MessageBox run={run} message={message} key={index} />
          ))}
        </details>
      )}
      {segment.series.length > 0 && <Robot run={run} segment={segment} />}
      {segment.turns.some((turn) => turn.messages.length) && (
        <Conversation run={run} segment={segment} before={before} />
      )}
    </>
  );
}
