import type { SegmentTokens } from "../api";
import { printable } from "../format";
import type { Scale } from "./columns";

/** Tokens of a block. The browser lays out and paints only the blocks that are near the visible part. */
export const BLOCK = 256;

interface BlockProps {
  tokens: SegmentTokens;
  /** The decisions of a control policy have no texts, and all of them the same id: their position is shown. */
  isControl: boolean;
  scale: Scale;
  start: number;
}

export function TokenBlock({ tokens, isControl, scale, start }: BlockProps) {
  const end = Math.min(start + BLOCK, tokens.ids.length);
  const spans = [];
  for (let position = start; position < end; position++) {
    const color = scale.color(scale.values[position] ?? null);
    const { text, kind } = isControl ? decision(tokens, position) : shownText(tokens, position);
    spans.push(
      <span
        class={`token ${tokens.trained[position] ? "trained" : "given"} ${kind}`}
        data-token={position}
        style={color && { backgroundColor: color }}
        key={position}
      >
        {text}
      </span>,
    );
  }
  return <div class="token-block">{spans}</div>;
}

/** An episode that was cut short ends with a state without a decision. */
function decision(tokens: SegmentTokens, position: number): { text: string; kind: string } {
  return { text: tokens.trained[position] ? String(position) : "final state", kind: "bare" };
}

/** Such as "<|im_end|>", "</s>" and "[PAD]". */
const SPECIAL = /^(?:<[^<>\s]{1,60}>|\[[A-Z_]{2,20}\])$/;

/** A special token that repeats, such as that of the patches of a picture, is written once. */
export function shownText(tokens: SegmentTokens, position: number): { text: string; kind: string } {
  const text = tokens.texts[position] ?? "";
  if (!text) return { text: String(tokens.ids[position]), kind: "bare" };
  if (SPECIAL.test(text) && text === tokens.texts[position - 1]) return { text: "·", kind: "repeated" };
  return { text: printable(text).replaceAll("\n", "↵\n"), kind: SPECIAL.test(text) ? "special" : "" };
}
