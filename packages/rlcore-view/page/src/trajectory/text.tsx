// Texts of messages. They are only ever inserted as text.
import { useState } from "preact/hooks";
import { count, printable } from "../format";

/** Characters that are shown at once: a text of 20 MB must not freeze the page. */
const CHUNK = 100_000;

interface Block {
  kind: "text" | "think" | "code";
  text: string;
  /** Its offset in the whole text. */
  start: number;
}

interface TextProps {
  text: string;
  /** Whether reasoning and code are set apart. */
  rich?: boolean;
  /** Whether more of the message follows, such as a call of a tool. */
  followed?: boolean;
  /** The offset of a character to mark. */
  marked?: number;
  /** Characters that are shown at once. */
  chunk?: number;
}

export function LongText({ text, rich, followed = false, marked = -1, chunk = CHUNK }: TextProps) {
  const [shown, setShown] = useState(Math.max(chunk, Math.ceil((marked + 1) / chunk) * chunk));
  const part = text.length > shown ? text.slice(0, shown) : text;
  const blocks: Block[] = rich
    ? blocksOf(part, followed || text.length > shown)
    : [{ kind: "text", text: part, start: 0 }];
  // The white space around a block is not shown; a mark in it moves to the next character that is.
  const isBefore = (block: Block) => marked < block.start + block.text.length;
  const holder = marked < 0 ? undefined : (blocks.find(isBefore) ?? blocks.at(-1));
  const at = holder ? Math.min(holder.text.length, Math.max(0, marked - holder.start)) : -1;
  return (
    <>
      {blocks.map((block) => (
        <BlockView block={block} marked={block === holder ? at : -1} key={block.start} />
      ))}
      {text.length > shown && (
        <button type="button" class="more" onClick={() => setShown(shown + chunk)}>
          Show {moreOf(text.length - shown, chunk)}
        </button>
      )}
    </>
  );
}

function moreOf(left: number, chunk: number): string {
  if (left <= chunk) return `the last ${count(left, "character")}`;
  return `the next ${count(chunk, "character")} of ${left.toLocaleString("en")}`;
}

function BlockView({ block, marked }: { block: Block; marked: number }) {
  const text = <Marked text={block.text} at={marked} />;
  if (block.kind === "code") return <div class="source">{text}</div>;
  if (block.kind === "text") return <div class="prose">{text}</div>;
  return (
    <div class="think">
      <span class="label">reasoning</span>
      <div class="prose">{text}</div>
    </div>
  );
}

/** A text in which one character is marked; an offset of -1 marks none, and the length of the text its end. */
export function Marked({ text, at = -1 }: { text: string; at?: number }) {
  if (at < 0) return <>{printable(text)}</>;
  const character = String.fromCodePoint(text.codePointAt(at) ?? 0);
  const ends = at >= text.length;
  const sign = ends ? "end" : character === "\n" ? "↵\n" : printable(character);
  return (
    <>
      {printable(text.slice(0, at))}
      <mark class={ends ? "differs ends" : "differs"} title="first difference">
        {sign}
      </mark>
      {!ends && printable(text.slice(at + character.length))}
    </>
  );
}

// Reasoning with its tags, and a fence of code with its language. What is not closed extends to the end of the text.
const SPECIAL = /(<think>[\s\S]*?(?:<\/think>|(?![\s\S])))|^[ \t]*```[^\n`]*\n([\s\S]*?)(?:^[ \t]*```[ \t]*$|(?![\s\S]))/gm;

function blocksOf(text: string, isFollowed: boolean): Block[] {
  const blocks: Block[] = [];
  let end = 0;
  const add = (kind: Block["kind"], start: number, stop: number) => {
    const inside = text.slice(start, stop).trimEnd();
    const blank = inside.match(/^\s*\n/)?.[0].length ?? 0;
    if (inside.trim()) blocks.push({ kind, text: inside.slice(blank), start: start + blank });
  };
  // Some chat templates begin the reasoning in the prompt, so the answer only has its end.
  const closed = text.indexOf("</think>");
  if (closed >= 0 && !text.slice(0, closed).includes("<think>")) {
    end = closed + "</think>".length;
    add("think", 0, end);
  }
  SPECIAL.lastIndex = end;
  for (let found = SPECIAL.exec(text); found; found = SPECIAL.exec(text)) {
    const inside = found[1] ?? found[2] ?? "";
    add("text", end, found.index);
    const start = found.index + (found[1] === undefined ? found[0].indexOf("\n") + 1 : 0);
    add(found[1] === undefined ? "code" : "think", start, start + inside.length);
    end = found.index + found[0].length;
  }
  add("text", end, text.length);
  // A policy may write its answer inside of the tags, so reasoning is told from an answer only where one follows.
  const last = blocks.at(-1);
  if (last?.kind === "think" && !isFollowed) last.kind = "text";
  return blocks.length ? blocks : [{ kind: "text", text, start: 0 }];
}
