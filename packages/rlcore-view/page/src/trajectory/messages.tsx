// A conversation by turns.
import { Fragment, type ComponentChildren } from "preact";
import type { Mark, Message, Num, Segment, ToolCall, Turn, TurnNote } from "../api";
import { count, number, printable } from "../format";
import { Pill } from "../ui";
import { Note } from "./note";
import { MarkLegend, Picture } from "./picture";
import { LongText, Marked } from "./text";

/** A character to mark: "piece" counts the parts of a message and then its calls. */
export interface Marking {
  piece: number;
  offset: number;
}

interface ConversationProps {
  run: string;
  segment: Segment;
  /** Turns of the policy in the segments before it. */
  before: number;
}

export function Conversation({ run, segment, before }: ConversationProps) {
  let policies = before;
  let results: Message[][] = [];
  return (
    <ol class="conversation">
      {segment.turns.map((turn, index) => {
        if (turn.kind === "observation") {
          const linked = new Set(results.flat());
          const messages = turn.messages.filter((message) => !linked.has(message));
          const note = segment.turns[index + 1]?.note;
          const observation = <Observation run={run} messages={messages} after={policies} note={note} key={index} />;
          return segment.turns[index - 1]?.note?.cells.length ? <Folded key={index}>{observation}</Folded> : observation;
        }
        results = resultsOf(turn, segment.turns[index + 1]);
        const marks = segment.turns[index + 2]?.note?.marks ?? [];
        policies++;
        return <Answer run={run} turn={turn} number={policies} results={results} marks={marks} key={index} />;
      })}
    </ol>
  );
}

/** The observation after cells, which have the same output and pictures. */
function Folded({ children }: { children: ComponentChildren }) {
  return (
    <li>
      <details class="context">
        <summary>What the model read</summary>
        <ol class="conversation">{children}</ol>
      </details>
    </li>
  );
}

interface ObservationProps {
  run: string;
  messages: Message[];
  /** Turns of the policy before it. */
  after: number;
  /** Of the turn after it. */
  note: TurnNote | null | undefined;
}

function Observation({ run, messages, after, note }: ObservationProps) {
  if (!messages.length) return null;
  const pictured = messages.filter((message) => message.parts.some((part) => "image" in part)).at(-1);
  const asking = messages.filter((message) => message.role === "user").at(-1);
  return (
    <li class="turn">
      {messages.map((message, index) => (
        <MessageBox
          run={run}
          message={message}
          label={after && message.role === "user" ? "environment" : message.role}
          marks={message === pictured ? note?.marks : []}
          asked={message === asking ? note?.asked : null}
          key={index}
        />
      ))}
    </li>
  );
}

interface AnswerProps {
  run: string;
  turn: Turn;
  number: number;
  results: Message[][];
  marks: Mark[];
}

function Answer({ run, turn, number: place, results, marks }: AnswerProps) {
  let calls = 0;
  return (
    <li class="turn policy">
      <TurnFacts turn={turn} place={place} />
      {turn.messages.map((message, index) => {
        const own = results.slice(calls, (calls += message.calls.length));
        const said = index === turn.messages.length - 1 ? turn.note?.said : null;
        return <MessageBox run={run} message={message} results={own} marks={marks} asked={said} key={index} />;
      })}
      {turn.note && <Note run={run} note={turn.note} />}
    </li>
  );
}

function TurnFacts({ turn, place }: { turn: Turn; place: number }) {
  return (
    <div class="turn-facts">
      <strong>Turn {place}</strong>
      <span>{count(turn.end - turn.start, "token")}</span>
      {turn.finish_reason && <span>{printable(turn.finish_reason)}</span>}
      <span>policy {turn.versions.join(" to ")}</span>
      {turn.reward !== null && <span>reward {number(turn.reward)}</span>}
      {turn.note?.right != null && <Verdict right={turn.note.right} />}
    </div>
  );
}

export function Verdict({ right }: { right: boolean }) {
  return <Pill kind={right ? "good" : "bad"}>{right ? "right" : "wrong"}</Pill>;
}

interface MessageProps {
  run: string;
  message: Message;
  label?: string;
  /** What each call returned. */
  results?: Message[][];
  /** Messages that follow it elsewhere on the page. */
  later?: Message[];
  /** Marks on its last picture, or on that of its results. */
  marks?: Mark[] | undefined;
  /** The text in short, which folds the whole one. */
  asked?: string | null | undefined;
  marking?: Marking;
  /** Characters of a text that are shown at once. */
  chunk?: number;
}

export function MessageBox(props: MessageProps) {
  const { run, message, label, results, later = [], marks = [], asked, marking, chunk } = props;
  const isAnswer = message.role === "assistant";
  const last = message.parts.map((part) => "image" in part).lastIndexOf(true);
  const at = (piece: number) => (marking?.piece === piece ? marking.offset : -1);
  const texts = textsOf(message);
  const folds = asked != null && asked.trim() !== texts.join("").trim();
  const hasNothing = !message.calls.length && message.parts.every((part) => "text" in part && !part.text);
  return (
    <section class={`message ${message.role}`}>
      <header class="role">{printable([label ?? message.role, message.name].filter(Boolean).join(" · "))}</header>
      {message.parts.map((part, piece) =>
        "text" in part ? (
          !folds &&
          (part.text || at(piece) >= 0) && (
            <LongText
              text={part.text}
              rich={isAnswer}
              followed={piece < message.parts.length - 1 || message.calls.length > 0}
              marked={at(piece)}
              chunk={chunk}
              key={piece}
            />
          )
        ) : (
          <Fragment key={piece}>
            {at(piece) >= 0 && <p class="differs">another picture</p>}
            <Picture run={run} name={part.image} marks={piece === last && !isAnswer ? marks : []} />
          </Fragment>
        ),
      )}
      {folds && (
        <>
          {asked && <LongText text={asked} rich={isAnswer} followed />}
          <details>
            <summary>Whole text, {count(texts.join("").length, "character")}</summary>
            {texts.map((text, index) => text && <LongText text={text} chunk={chunk} key={index} />)}
          </details>
        </>
      )}
      {last >= 0 && marks.length > 0 && !isAnswer && <MarkLegend marks={marks} />}
      {hasNothing && (marking ? <Marked text="" at={0} /> : <p class="nothing">empty</p>)}
      {message.calls.map((call, index) => (
        <CallCard
          run={run}
          call={call}
          results={results?.[index] ?? []}
          later={later}
          marks={marks}
          marked={at(message.parts.length + index)}
          chunk={chunk}
          key={index}
        />
      ))}
    </section>
  );
}

interface CallProps {
  run: string;
  call: ToolCall;
  results: Message[];
  later: Message[];
  marks: Mark[];
  marked: number;
  chunk: number | undefined;
}

function CallCard({ run, call, results, later, marks, marked, chunk }: CallProps) {
  const { error } = call;
  // The model usually reads the error as the result of the call.
  const isSaid = error !== null && [...results, ...later].some((message) => textOf(message).includes(error));
  const written = call.code || call.arguments;
  const inName = marked >= 0 && marked < call.name.length;
  return (
    <div class="call">
      <header>
        <span class="label">{error ? "unreadable call" : "call"}</span>
        <code>
          <Marked text={call.name || "(no name)"} at={inName ? marked : -1} />
        </code>
      </header>
      {written && (
        <div class="source">
          <LongText text={written} marked={marked >= 0 && !inName ? marked - call.name.length : -1} chunk={chunk} />
        </div>
      )}
      {error && !isSaid && <p class="problem">{printable(error)}</p>}
      {results.map((message, index) => (
        <MessageBox run={run} message={message} label="result" marks={marks} key={index} />
      ))}
    </div>
  );
}

const textsOf = ({ parts }: Message) => parts.flatMap((part) => ("text" in part ? part.text : []));
const textOf = (message: Message) => textsOf(message).join("");

/** The results of the calls of a turn, in their order: the messages of tools that follow it. */
function resultsOf(turn: Turn, next: Turn | undefined): Message[][] {
  const answers = next?.kind === "observation" ? next.messages.filter((message) => message.role === "tool") : [];
  return turn.messages
    .flatMap((message) => message.calls)
    .map((call) => {
      const found = answers.findIndex((message) => !message.name || message.name === call.name);
      return found < 0 ? [] : answers.splice(found, 1);
    });
}

export function rewardText(value: Num): string {
  return value === null ? "not scored" : number(value);
}
