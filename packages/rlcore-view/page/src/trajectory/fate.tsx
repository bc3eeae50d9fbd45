// What became of a group, in words.
import type { Row } from "../api";
import { count, printable } from "../format";
import { Pill, type Kind } from "../ui";

const REASONS: Record<string, string> = {
  equal: "all rewards are equal",
  all_right: "all siblings are right",
  all_wrong: "all siblings are wrong",
  not_scored: "too few siblings are scored",
  surplus: "more groups than this step and the next one need",
};

interface Fate {
  kind: Kind;
  text: string;
  explains: string;
}

function fateOf(row: Row): Fate | null {
  const why = row.why ?? "";
  if (row.fate === "dropped") {
    const text = why ? `dropped: ${REASONS[why] ?? printable(why)}` : "dropped";
    return { kind: "warn", text, explains: `${text}. No step trains on this group.` };
  }
  if (row.trained_step === undefined && row.fate === "carried") {
    return { kind: "plain", text: "carried", explains: "carried: left for a later step, because the step was full" };
  }
  if (row.trained_step === undefined && row.fate !== "kept") return null;
  if (row.spread === 0) {
    const explains = "kept: the rewards of the group are equal, so the advantage relative to the group is 0";
    return { kind: "plain", text: "kept, equal rewards", explains };
  }
  const step = row.trained_step ?? row.step;
  const carried = step === row.step ? "" : ` It was sampled in step ${row.step} and carried.`;
  const explains = `kept: step ${step} trained on this group.${carried}`;
  return { kind: "good", text: `trained in step ${step}`, explains };
}

export function FatePill({ row }: { row: Row }) {
  const fate = fateOf(row);
  return (
    fate && (
      <span title={fate.explains}>
        <Pill kind={fate.kind}>{fate.text}</Pill>
      </span>
    )
  );
}

export function stalenessOf(row: Row): string {
  const updates = row.staleness;
  if (updates === undefined) return "";
  return `${count(updates, "update")} after sampling`;
}
