// A group: the task once, and its siblings beside each other.
import { useMemo, useState } from "preact/hooks";
import { choose, link, useAddress } from "./address";
import { type Group, type Mark, type Message, type Trajectory } from "./api";
import { useGroup } from "./data";
import { count, number, printable } from "./format";
import { byNumber, byReward, type Column, columnsOf, differencesOf } from "./siblings";
import { rangesOf } from "./trajectory/curves";
import { messagesOf, sharedBeginning, type Place } from "./trajectory/difference";
import { FactList, lengthOf, TaskLink, type Fact } from "./trajectory/facts";
import { FatePill, stalenessOf } from "./trajectory/fate";
import { MessageBox, rewardText, Verdict } from "./trajectory/messages";
import { curvesOf, decisionsOf, Episode, hasFilm, Player, statesOf } from "./trajectory/robot";
import { StepLink, stepName } from "./trajectory/step_link";
import { LongText } from "./trajectory/text";
import { Crumbs, Loading, Panel, ProblemBox } from "./ui";
import "./trajectory.css";

interface GroupProps {
  run: string;
  purpose: string;
  step: number;
  group: number;
}

export function GroupView({ run, purpose, step, group }: GroupProps) {
  const { value, problem } = useGroup(run, purpose, step, group);
  return (
    <>
      <Crumbs
        items={[
          { label: "Runs", href: link([]) },
          { label: run, href: link(["run", run]) },
          { label: stepName(purpose, step), href: link(["run", run, purpose, step]) },
          { label: `Group ${group}` },
        ]}
      />
      {problem ? <ProblemBox problem={problem} /> : !value && <Loading />}
      {value && <Shown place={[run, purpose, step, group]} group={value} />}
    </>
  );
}

type Where = [run: string, purpose: string, step: number, group: number];

function Shown({ place, group }: { place: Where; group: Group }) {
  const [run] = place;
  const beginning = useMemo(() => sharedBeginning(group.trajectories), [group]);
  return (
    <div class="group">
      <GroupBar place={place} group={group} />
      <TaskPanel run={run} group={group} beginning={beginning} />
      <SiblingsPanel place={place} group={group} beginning={beginning} />
    </div>
  );
}

function GroupBar({ place: [run, purpose, step], group }: { place: Where; group: Group }) {
  const href = (other: number | null) => (other === null ? "" : link(["run", run, purpose, step, other]));
  const row = group.trajectories[0]?.row;
  return (
    <div class="bar">
      <nav class="siblings" aria-label="Groups">
        <StepLink href={href(group.previous)} label="Previous" />
        <StepLink href={href(group.next)} label="Next" />
      </nav>
      <span class="summary">
        {row?.mean !== undefined && (
          <span>
            reward <strong>{number(row.mean)}</strong> ± {number(row.spread)}
          </span>
        )}
        <span>{count(group.trajectories.length, "sibling")}</span>
        {row && <FatePill row={row} />}
        {row?.staleness !== undefined && <span>{stalenessOf(row)}</span>}
      </span>
    </div>
  );
}

/** Siblings share the beginning, so it is shown once, folded. */
function TaskPanel({ run, group, beginning }: { run: string; group: Group; beginning: number }) {
  const first = group.trajectories[0];
  const shared = first && beginning ? messagesOf(first).slice(0, beginning) : group.prompt;
  const pictured = shared.filter((message) => message.parts.some((part) => "image" in part)).at(-1);
  const marks = marksOf(group);
  const facts: Fact[] = [
    [
      "task",
      <>
        {printable(group.task)} <TaskLink run={run} task={group.task}>over the steps</TaskLink>
      </>,
    ],
    ...(group.environment ? [["environment", printable(group.environment)] as Fact] : []),
    ...Object.entries(group.fields).map(([name, text]): Fact => [
      name,
      text ? <Field name={name} text={text} /> : <span class="nothing">empty</span>,
    ]),
  ];
  return (
    <Panel title="Task">
      <div class="task">
        <div>
          {shared.length > 0 && (
            <details open={isShort(shared)}>
              <summary>Prompt, shared by all siblings</summary>
              {shared.map((message, index) => (
                <MessageBox run={run} message={message} marks={message === pictured ? marks : []} key={index} />
              ))}
            </details>
          )}
          {group.tools.length > 0 && <Tools tools={group.tools} />}
        </div>
        <FactList facts={facts} />
      </div>
    </Panel>
  );
}

/** Characters of a field that has its own scroll bar. */
const LONG = 150;

function Field({ name, text }: { name: string; text: string }) {
  if (text.length <= LONG) return <LongText text={text} />;
  return (
    <div class="long" tabIndex={0} role="group" aria-label={printable(name)}>
      <LongText text={text} />
    </div>
  );
}

/** Characters of a prompt that is not folded at first. */
const SHORT = 600;

function isShort(messages: Message[]): boolean {
  const texts = messages.flatMap((message) => message.parts.map((part) => ("text" in part ? part.text : "")));
  return texts.join("").length <= SHORT;
}

function Tools({ tools }: { tools: Group["tools"] }) {
  return (
    <details>
      <summary>{count(tools.length, "tool")}</summary>
      {tools.map((tool, index) => (
        <div class="call" key={index}>
          <header>
            <code>{printable(tool.name)}</code>
          </header>
          <LongText text={tool.description} />
          <div class="source">
            <LongText text={tool.parameters} />
          </div>
        </div>
      ))}
    </details>
  );
}

/** The marks of all siblings on the picture of the shared prompt. */
function marksOf(group: Group): Mark[] {
  const marks = new Map<string, Mark>();
  for (const { row, segments } of group.trajectories) {
    const note = segments[0]?.turns.find((turn) => turn.kind === "policy")?.note;
    for (const mark of note?.marks ?? []) {
      const label = mark.kind === "given" ? `sibling ${row.sibling} ${mark.label}`.trim() : mark.label;
      marks.set(JSON.stringify({ ...mark, label }), { ...mark, label });
    }
  }
  return [...marks.values()];
}

interface SiblingsProps {
  place: Where;
  group: Group;
  beginning: number;
}

function SiblingsPanel({ place, group, beginning }: SiblingsProps) {
  const { query } = useAddress();
  const isByNumber = query.order === "number";
  const [cursor, setCursor] = useState(0);
  const columns = useMemo(
    () => columnsOf([...group.trajectories].sort(isByNumber ? byNumber : byReward)),
    [group, isByNumber],
  );
  const differences = useMemo(() => differencesOf(columns.map((column) => column[0])), [columns]);
  const episodes = useMemo(
    () => group.trajectories.flatMap((one) => one.segments.filter((segment) => segment.series.length)),
    [group],
  );
  const ranges = useMemo(() => rangesOf(episodes.flatMap(curvesOf)), [episodes]);
  const size = Math.max(1, ...episodes.map(statesOf));
  return (
    <Panel title="Siblings" actions={<Order isByNumber={isByNumber} />}>
      <p class="hint">{hintOf(columns, differences, episodes.length > 0)}</p>
      {episodes.length > 0 && (
        <Player
          size={size}
          decisions={Math.max(...episodes.map(decisionsOf))}
          place={cursor}
          canPlay={episodes.some(hasFilm)}
          onMove={setCursor}
        />
      )}
      <div class="columns" tabIndex={0} role="group" aria-label="Siblings">
        {columns.map((siblings, index) => (
          <SiblingColumn
            place={place}
            siblings={siblings}
            beginning={beginning}
            difference={differences[index] ?? null}
            ranges={ranges}
            cursor={cursor}
            size={size}
            onMove={setCursor}
            key={siblings[0].row.sibling}
          />
        ))}
      </div>
    </Panel>
  );
}

function Order({ isByNumber }: { isByNumber: boolean }) {
  return (
    <div class="tabs" role="group" aria-label="Order">
      <button type="button" aria-pressed={!isByNumber} onClick={() => choose({ order: undefined })}>
        By reward
      </button>
      <button type="button" aria-pressed={isByNumber} onClick={() => choose({ order: "number" })}>
        By number
      </button>
    </div>
  );
}

function hintOf(columns: Column[], differences: (Place | null)[], isControl: boolean): string {
  if (columns.flat().length < 2) return "The group has one sibling.";
  if (isControl) return "All siblings are at the same decision; those that ended earlier are at their end.";
  if (!differences[0]) return "The messages of all siblings are equal.";
  if (columns.length === 2) return "The first difference is marked in both columns.";
  return "Each column marks its first difference from the first column, which marks the earliest of them.";
}

interface ColumnProps {
  place: Where;
  siblings: Column;
  /** Messages that all siblings share. */
  beginning: number;
  difference: Place | null;
  ranges: ReturnType<typeof rangesOf>;
  cursor: number;
  size: number;
  onMove: (place: number) => void;
}

/** Messages of a sibling, and characters of a text, that are shown here at first; the trajectory has all. */
const SHOWN = 30;
const CHARACTERS = 5000;

function SiblingColumn({ place, siblings, beginning, difference, ranges, cursor, size, onMove }: ColumnProps) {
  const [run] = place;
  const [trajectory] = siblings;
  const messages = messagesOf(trajectory).slice(beginning);
  const episode = trajectory.segments.find((segment) => segment.series.length);
  const differsAt = difference ? difference.message - beginning : -1;
  return (
    <article class="column">
      <ColumnHead place={place} siblings={siblings} />
      {episode && (
        <Episode run={run} segment={episode} ranges={ranges} place={cursor} size={size} onMove={onMove} />
      )}
      {messages.slice(0, SHOWN).map((message, index) => (
        <MessageBox
          run={run}
          message={message}
          later={messages.slice(index + 1, SHOWN)}
          label={index && message.role === "user" ? "environment" : undefined}
          marking={index === differsAt ? (difference ?? undefined) : undefined}
          chunk={CHARACTERS}
          key={index}
        />
      ))}
      {differsAt >= 0 && differsAt === messages.length && <p class="nothing differs">ends here</p>}
      {messages.length > SHOWN && (
        <a href={hrefOf(place, trajectory)}>{count(messages.length - SHOWN, "further message")}</a>
      )}
    </article>
  );
}

function hrefOf([run, purpose, step, group]: Where, { row }: Trajectory): string {
  return link(["run", run, purpose, step, group, row.sibling]);
}

function ColumnHead({ place, siblings }: { place: Where; siblings: Column }) {
  const [trajectory] = siblings;
  const { row, rewards, segments, failure } = trajectory;
  const judged = segments.flatMap((segment) => segment.turns.flatMap((turn) => turn.note?.right ?? []));
  const components = rewards.flatMap((reward) => [
    ...(rewards.length > 1 ? [[reward.id, reward.value] as const] : []),
    ...Object.entries(reward.components),
  ]);
  return (
    <header>
      <div class="first">
        <span>
          {siblings.map((one, index) => (
            <>
              {index > 0 && ", "}
              <a href={hrefOf(place, one)}>
                {index > 0 ? "" : siblings.length > 1 ? "Siblings " : "Sibling "}
                {one.row.sibling} {printable(one.row.role ?? "")}
              </a>
            </>
          ))}
          {siblings.length > 1 && ": same messages"}
        </span>
        {judged.length === 1 && <Verdict right={judged[0]!} />}
        <strong>{row.reward === null ? rewardText(null) : `reward ${rewardText(row.reward)}`}</strong>
      </div>
      <div class="second">
        <span>{printable(row.stop)}</span>
        <span>{lengthOf(trajectory)}</span>
        {row.excluded && <span>excluded</span>}
      </div>
      {components.length > 0 && (
        <div class="second">
          {components.map(([name, value], index) => (
            <span key={index}>
              {printable(name)} <b>{rewardText(value)}</b>
            </span>
          ))}
        </div>
      )}
      {failure && <p class="failure">{printable(failure)}</p>}
    </header>
  );
}
