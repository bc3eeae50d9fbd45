// The columns of tokens, their scales, and the tokens that stand out.
import type { Num, SegmentTokens } from "../api";
import { diverging, sequential } from "../colors";

interface Kind {
  title: string;
  /** In the middle of the scale, which then diverges; null where the numbers grow from zero. */
  centre: number | null;
  explains: string;
}

const KINDS = new Map<string, Kind>(Object.entries({
  advantage: { title: "advantage", centre: 0, explains: "Above zero, it becomes more likely." },
  logprob: { title: "log-probability", centre: null, explains: "Of the learner before the update, in nats." },
  engine_logprob: { title: "engine log-probability", centre: null, explains: "Of the engine that sampled, in nats." },
  gap: { title: "gap", centre: 0, explains: "Learner minus engine, in nats. It is near zero if they agree." },
  ratio: { title: "ratio", centre: 1, explains: "How much more likely the token was in the last update than before the step: 1 is equally likely." },
  entropy: { title: "entropy", centre: null, explains: "Of the distribution that was sampled, in nats." },
  reference_logprob: { title: "reference log-probability", centre: null, explains: "Of the reference model, in nats." },
  value: { title: "value", centre: 0, explains: "What the critic expects." },
  version: { title: "policy version", centre: null, explains: "Of the weights that sampled it, if they changed in the turn." },
  mask: { title: "mask", centre: null, explains: "1 for what the policy wrote, 0 for all others." },
}));

/** A token stands out if its distance from the neutral value is at or beyond this quantile and at least this share of
 *  the maximum. The second share limits their number where many are equal. */
const QUANTILE = 0.95;
const OF_MAXIMUM = 0.5;
const OF_TOKENS = 0.1;
/** Share of the values inside of the scale: one outlier must not hide all other differences. */
const INSIDE = 0.99;

export interface Scale extends Kind {
  values: Num[];
  low: number;
  high: number;
  /** The extreme values, which may be beyond the scale. */
  least: number;
  most: number;
  color: (value: Num) => string | undefined;
  /** How much a value stands out. */
  strength: (value: number) => number;
}

export function columnNames(tokens: SegmentTokens): string[] {
  const known = [...KINDS.keys()].filter((name) => name === "mask" || name in tokens.columns);
  return [...known, ...Object.keys(tokens.columns).filter((name) => !KINDS.has(name))];
}

export function titleOf(name: string): string {
  return KINDS.get(name)?.title ?? name;
}

export function scaleOf(tokens: SegmentTokens, name: string): Scale {
  const values = name === "mask" ? tokens.trained.map(Number) : (tokens.columns[name] ?? []);
  const kind = KINDS.get(name) ?? { title: name, centre: 0, explains: "" };
  const sorted = Float64Array.from(values.filter((value) => value !== null)).sort();
  const shared = { ...kind, values, least: sorted[0] ?? 0, most: sorted.at(-1) ?? 0 };
  if (kind.centre === null) {
    const [low, high] = [Math.min(0, quantile(sorted, 1 - INSIDE)), Math.max(0, quantile(sorted, INSIDE))];
    // Log-probabilities are negative: the least likely tokens have the strongest colour.
    const strength = high > -low ? (value: number) => value : (value: number) => -value;
    const limit = Math.max(high, -low);
    const color = (value: Num) => (value === null ? undefined : sequential(strength(value), 0, limit));
    return { ...shared, low: high > -low ? 0 : low, high: high > -low ? high : 0, color, strength };
  }
  const centre = kind.centre;
  const limit = Math.max(quantile(sorted, INSIDE) - centre, centre - quantile(sorted, 1 - INSIDE));
  const color = (value: Num) => (value === null ? undefined : diverging(value - centre, limit));
  const strength = (value: number) => Math.abs(value - centre);
  return { ...shared, low: centre - limit, high: centre + limit, color, strength };
}

/** Positions of the tokens that stand out, in their order; at least one if there are values. */
export function extremesOf(scale: Scale): number[] {
  const places = scale.values.flatMap((value, position) => (value === null ? [] : [position]));
  const strength = (position: number) => scale.strength(scale.values[position] ?? 0);
  const sorted = Float64Array.from(places, strength).sort();
  const least = Math.max(quantile(sorted, QUANTILE), OF_MAXIMUM * (sorted.at(-1) ?? 0));
  return places
    .filter((position) => strength(position) >= least)
    .sort((one, other) => strength(other) - strength(one))
    .slice(0, Math.max(1, Math.floor(OF_TOKENS * places.length)))
    .sort((one, other) => one - other);
}

/** The tokens with the highest and the lowest value, where that end of the scale has a colour. */
export function endsOf(scale: Scale): { name: "highest" | "lowest"; position: number }[] {
  let [highest, lowest] = [-1, -1];
  const at = (position: number) => scale.values[position] ?? null;
  scale.values.forEach((value, position) => {
    if (value === null) return;
    if (highest < 0 || value > at(highest)!) highest = position;
    if (lowest < 0 || value < at(lowest)!) lowest = position;
  });
  if (highest < 0 || at(highest) === at(lowest)) return [];
  const neutral = scale.centre ?? 0;
  return [
    ...(scale.high > neutral ? [{ name: "highest" as const, position: highest }] : []),
    ...(scale.low < neutral ? [{ name: "lowest" as const, position: lowest }] : []),
  ];
}

function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.round(share * (sorted.length - 1))] ?? 0;
}
