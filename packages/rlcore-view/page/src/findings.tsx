// What the rules of the diagnosis found in a run.
import { link } from "./address";
import type { Finding } from "./api";
import { isReport } from "./api";
import { count, printable } from "./format";
import { Pill } from "./ui";

/** Conditions that find the trajectories of a rule. */
const CONDITIONS: Record<string, string> = {
  "rewards-zero": "reward == 0",
  "rewards-rare": "reward > 0",
  "rewards-maximal": "spread == 0",
  "groups-equal": "spread == 0",
  "siblings-equal": "spread == 0",
  "not-scored": "reward is None",
  "reward-raises": "reward is None",
  "cut-by-turn": 'stop == "length"',
  "cut-by-context": 'stop == "length"',
  "turns-used-up": 'stop == "max_turns"',
  "tools-fail": "tool_errors > 0",
  "calls-unreadable": "tool_errors > 0",
};

export function Findings({
  run,
  findings,
  steps,
  hasStep,
}: {
  run: string;
  findings: Finding[];
  /** Steps that were looked at: some problems show only after several. */
  steps: number;
  hasStep: (step: number) => boolean;
}) {
  if (!findings.length && !steps) return <p class="muted">No step has ended yet.</p>;
  if (!findings.length) return <p class="muted">No problems found in {count(steps, "step")}.</p>;
  return (
    <ul class="findings">
      {findings.map(({ rule, step, text, key, fix, status }) => (
        <li key={rule}>
          <Pill kind={status === "fail" ? "bad" : "warn"}>{printable(status)}</Pill>
          <div>
            <p>
              {hasStep(step) ? <a href={link(["run", run, "train", step])}>step {step}</a> : `step ${step}`}:{" "}
              {printable(text)}
            </p>
            {fix && (
              <p class="muted">
                {key && (
                  <>
                    change <code>{printable(key)}</code>:{" "}
                  </>
                )}
                {printable(fix)}
              </p>
            )}
          </div>
          {CONDITIONS[rule] && !isReport && (
            <a href={link(["run", run, "find"], { where: CONDITIONS[rule], purpose: "train", steps: step })}>
              Show trajectories
            </a>
          )}
        </li>
      ))}
    </ul>
  );
}
