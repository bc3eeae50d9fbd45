// What became of a group, in words.
import type { Row } from "../api";
import { printable } from "../format";

const REASONS: Record<string, string> = {
  equal: "all rewards are equal",
  all_right: "all siblings are right",
  all_wrong: "all siblings are wrong",
  not_scored: "too few siblings are scored",
  surplus: "more groups than needed",
};

export interface Fate {
  kind: "good" | "warn" | "plain";
  text: string;
}

export function fateOf(row: Row): Fate | null {
  if (row.trained_step !== undefined) return { kind: "good", text: `trained in step ${row.trained_step}` };
  if (row.fate === "kept") return { kind: "good", text: "trained" };
  const why = row.why ?? "";
  if (row.fate === "dropped") return { kind: "warn", text: `dropped: ${REASONS[why] ?? printable(why)}` };
  if (row.fate === "carried") return { kind: "plain", text: "left for a later step" };
  return null;
}

export function stalenessOf(row: Row): string {
  const updates = row.staleness;
  if (updates === undefined) return "";
  if (updates === 0) return "trained by the policy that sampled it";
  return `trained ${updates} ${updates === 1 ? "update" : "updates"} after sampling`;
}
