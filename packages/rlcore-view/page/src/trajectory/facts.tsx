// What is known about a trajectory besides its conversation.
import type { ComponentChildren } from "preact";
import { link } from "../address";
import { isReport, type Num, type Reward, type Row, type Trajectory } from "../api";
import { count, number, printable } from "../format";
import { Panel } from "../ui";
import { FatePill, stalenessOf } from "./fate";
import { rewardText } from "./messages";
import { LongText } from "./text";

export type Fact = [string, ComponentChildren];

export function FactList({ facts }: { facts: Fact[] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{printable(name)}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function FactsPanel({ run, trajectory }: { run: string; trajectory: Trajectory }) {
  const { row } = trajectory;
  const facts: Fact[] = [
    ["reward", <strong>{rewardText(row.reward)}</strong>],
    ["stop", printable(row.stop)],
    ["length", lengthOf(trajectory)],
  ];
  if (row.environment) facts.push(["environment", printable(row.environment)]);
  if (row.mean !== undefined) facts.push(["group mean", `${number(row.mean)} ± ${number(row.spread)}`]);
  if (row.fate || row.trained_step !== undefined) facts.push(["group", <FatePill row={row} />]);
  if (row.excluded) facts.push(["excluded", "algorithm.filter.exclude leaves it out"]);
  if (row.staleness !== undefined) facts.push(["staleness", stalenessOf(row)]);
  if (row.versions) facts.push(["policy version", versionsOf(row.versions)]);
  return (
    <Panel title="Facts">
      {trajectory.failure && <p class="failure">{printable(trajectory.failure)}</p>}
      <FactList facts={facts} />
      <TaskLink run={run} task={row.task}>
        the same task over the steps
      </TaskLink>
      <Numbers title="Metrics" numbers={row.metrics} />
      {row.sampling && <Numbers title="Sampling" numbers={row.sampling} />}
    </Panel>
  );
}

/** A link to what became of a task over the run. A report cannot search. */
export function TaskLink({ run, task, children }: { run: string; task: string; children: ComponentChildren }) {
  if (isReport) return null;
  return <a href={link(["run", run, "find"], { task, sort: "step" })}>{children}</a>;
}

export function lengthOf({ row, segments }: Trajectory): string {
  // A control policy decides once in each turn.
  if (segments.some((segment) => segment.series.length)) return count(row.turns, "decision");
  return `${count(row.tokens, "token")}, ${count(row.turns, "turn")}`;
}

function versionsOf([lowest, highest]: [number, number]): string {
  return lowest === highest ? String(lowest) : `${lowest} to ${highest}`;
}

function Numbers({ title, numbers }: { title: string; numbers: Record<string, Num | string> }) {
  const names = Object.keys(numbers);
  if (!names.length) return null;
  return (
    <details>
      <summary>{title}</summary>
      <FactList facts={names.map((name) => [name, shown(numbers[name] ?? null)])} />
    </details>
  );
}

/** Integers have all their digits, such as those of a seed. */
function shown(value: Num | string): string {
  if (typeof value === "string") return printable(value);
  return Number.isInteger(value) ? String(value) : number(value);
}

export function RewardsPanel({ row, rewards }: { row: Row; rewards: Reward[] }) {
  if (!rewards.length) return null;
  return (
    <Panel title={`Reward ${rewardText(row.reward)}`}>
      {rewards.map((reward) => (
        <div class="reward" key={reward.id}>
          <FactList
            facts={[
              [reward.id, <strong>{rewardText(reward.value)}</strong>],
              ...Object.entries(reward.components).map(([name, value]): Fact => [`· ${name}`, rewardText(value)]),
            ]}
          />
          {reward.error && <p class="failure">{printable(reward.error)}</p>}
          {reward.text && (
            <details class="verdict" open={reward.text.length < OPEN_VERDICT}>
              <summary>What the judge said</summary>
              <LongText text={reward.text} rich />
            </details>
          )}
        </div>
      ))}
    </Panel>
  );
}

/** Longer texts of a judge are folded, so that the other rewards stay visible. */
const OPEN_VERDICT = 2000;
