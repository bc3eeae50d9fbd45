// The extreme tokens of a step and the slowest call of a tool, as links.
import type { ComponentChildren } from "preact";
import { link } from "./address";
import { api, isStored } from "./api";
import { useAnswer } from "./data";
import { count, number, printable, seconds } from "./format";

const NAMES: Record<string, string> = { ratio: "highest ratio", logprob: "lowest log-probability" };

/** Absent if nothing is stored. */
export function ExtremesLine({ run, purpose, step }: { run: string; purpose: string; step: number }) {
  const { value } = useAnswer(
    (signal) => api.extremes(run, purpose, step, signal),
    JSON.stringify([run, purpose, step]),
  );
  if (!value?.tokens.length && !value?.tools) return null;
  const { tokens, tools } = value;
  const to = (place: number[], query: Record<string, string | number>, text: ComponentChildren) =>
    isStored(run, purpose, ...place.slice(0, 2)) ? <a href={link(["run", run, purpose, ...place], query)}>{text}</a> : text;
  return (
    <p class="overview">
      {tokens.map(({ column, value, segment, token, ...at }, index) => (
        <span key={column}>
          {index > 0 && " · "}
          {NAMES[column]}{" "}
          {to([at.step, at.group, at.sibling], { as: "tokens", color: column, segment, token }, number(value))}
        </span>
      ))}
      {tools && (
        <>
          {tokens.length > 0 && " · "}
          {count(tools.count, "tool call")}, mean {seconds(tools.mean)}, slowest{" "}
          {to([step, tools.group, tools.sibling], {}, `${printable(tools.name)} ${seconds(tools.seconds)}`)}
        </>
      )}
    </p>
  );
}
