// A trajectory: its conversation or its tokens, its rewards, facts and times.
import { useRef } from "preact/hooks";
import { choose, link, useAddress } from "../address";
import { type Group, type Trajectory } from "../api";
import { useGroup } from "../data";
import { printable } from "../format";
import { Crumbs, Loading, Panel, Pill, ProblemBox } from "../ui";
import { FactsPanel, RewardsPanel } from "./facts";
import { useFound } from "./found";
import { rewardText } from "./messages";
import { Segments } from "./segments";
import { StepLink, stepName } from "./step_link";
import { TokensView, type Place } from "./tokens";
import { Waterfall } from "./waterfall";
import "../trajectory.css";

type Mode = "messages" | "tokens";

export function TrajectoryView(place: Place) {
  const { run, purpose, step, group, sibling } = place;
  const { value, problem } = useGroup(run, purpose, step, group);
  const trajectory = value?.trajectories.find((one) => one.row.sibling === sibling);
  return (
    <>
      <Crumbs
        items={[
          { label: "Runs", href: link([]) },
          { label: run, href: link(["run", run]) },
          { label: stepName(purpose, step), href: link(["run", run, purpose, step]) },
          { label: `Group ${group}`, href: link(["run", run, purpose, step, group]) },
          { label: `Sibling ${sibling} ${printable(trajectory?.row.role ?? "")}`.trim() },
        ]}
      />
      {problem ? <ProblemBox problem={problem} /> : !value && <Loading />}
      {value && !trajectory && <p class="nothing">The group has no sibling {sibling}.</p>}
      {value && trajectory && <Shown place={place} group={value} trajectory={trajectory} />}
    </>
  );
}

function Shown({ place, group, trajectory }: { place: Place; group: Group; trajectory: Trajectory }) {
  const { query } = useAddress();
  const mode: Mode = query.as === "messages" || query.as === "tokens" ? query.as : query.color ? "tokens" : "messages";
  const isControl = trajectory.segments.some((segment) => segment.series.length);
  const box = useRef<HTMLDivElement>(null);
  useFound(box, query.text, `${Object.values(place).join("/")} ${mode}`);
  return (
    <div class="trajectory" ref={box}>
      <div class="bar">
        <Siblings place={place} group={group} />
        <ModeTabs mode={mode} isControl={isControl} />
      </div>
      <div class="main">
        {isControl && <Instruction group={group} />}
        {trajectory.notes_problem && (
          <p class="failure">The turns are not described: {printable(trajectory.notes_problem)}</p>
        )}
        {mode === "tokens" ? (
          <TokensView {...place} isControl={isControl} />
        ) : (
          <Segments run={place.run} segments={trajectory.segments} />
        )}
        {trajectory.times.length > 0 && (
          <Panel title="Times">
            <Waterfall times={trajectory.times} />
          </Panel>
        )}
      </div>
      <aside>
        <RewardsPanel row={trajectory.row} rewards={trajectory.rewards} />
        <FactsPanel run={place.run} trajectory={trajectory} />
      </aside>
    </div>
  );
}

/** The choices in the address, such as the colour, stay the same; the token is one of this sibling. */
function Siblings({ place, group }: { place: Place; group: Group }) {
  const { query } = useAddress();
  const { run, purpose, step } = place;
  const rows = group.trajectories.map((one) => one.row);
  const href = (sibling: number, of = place.group) =>
    link(["run", run, purpose, step, of, sibling], { ...query, token: undefined });
  const at = rows.findIndex((row) => row.sibling === place.sibling);
  const before = group.previous === null ? "" : href(group.previous_sibling ?? 0, group.previous);
  const previous = rows[at - 1] ? href(rows[at - 1]!.sibling) : before;
  const next = rows[at + 1] ? href(rows[at + 1]!.sibling) : group.next === null ? "" : href(0, group.next);
  return (
    <nav class="siblings" aria-label="Siblings">
      <StepLink href={previous} label="Previous" />
      {rows.map((row) => (
        <a
          href={href(row.sibling)}
          title={`Sibling ${row.sibling}, ${row.reward === null ? "" : "reward "}${rewardText(row.reward)}`}
          aria-current={row.sibling === place.sibling ? "page" : undefined}
          key={row.sibling}
        >
          <span class="muted">{row.sibling}</span> {rewardText(row.reward)}
        </a>
      ))}
      <StepLink href={next} label="Next" />
    </nav>
  );
}

function ModeTabs({ mode, isControl }: { mode: Mode; isControl: boolean }) {
  const names: Record<Mode, string> = isControl
    ? { messages: "Episode", tokens: "Decisions" }
    : { messages: "Messages", tokens: "Tokens" };
  return (
    <div class="tabs" role="group" aria-label="View">
      {(["messages", "tokens"] as const).map((one) => (
        <button type="button" aria-pressed={one === mode} onClick={() => choose({ as: one })} key={one}>
          {names[one]}
        </button>
      ))}
    </div>
  );
}

/** What a robot was told to do: its turns have no messages. */
function Instruction({ group }: { group: Group }) {
  const said = group.prompt.flatMap((message) => message.parts.map((part) => ("text" in part ? part.text : "")));
  const text = [group.fields.instruction ?? "", ...said].filter(Boolean).join("\n");
  if (!text) return null;
  return (
    <p class="instruction">
      <Pill kind="plain">instruction</Pill> {printable(text)}
    </p>
  );
}
