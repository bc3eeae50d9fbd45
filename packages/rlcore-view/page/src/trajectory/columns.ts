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
  advantage: { title: "advantage", centre: 0, explains: "Above zero, the token becomes more likely." },
  logprob: { title: "log-probability", centre: null, explains: "Of the learner before the update, in nats." },
  engine_logprob: { title: "engine log-probability", centre: null, explains: "Of the engine that sampled, in nats." },
  gap: { title: "gap", centre: 0, explains: "Learner minus engine, in nats. It is near zero if they agree." },
  ratio: { title: "ratio", centre: 1, explains: "Probability in the last update of the token over that before." },
  entropy: { title: "entropy", centre: null, explains: "Of the distribution over the next token, in nats." },
  reference_logprob: { title: "reference log-probability", centre: null, explains: "Of the reference model, in nats." },
  value: { title: "value", centre: 0, explains: "What the critic expects." },
  mask: { title: "mask", centre: null, explains: "1 for a token that the policy wrote, 0 for all others." },
}));

/** The number of tokens that "n" and "p" visit. */
const EXTREMES = 20;
/** Share of the values inside of the scale: one outlier must not hide all other differences. */
const INSIDE = 0.99;

export interface Scale extends Kind {
  values: Num[];
  low: number;
  high: number;
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
  if (kind.centre === null) {
    const [low, high] = [Math.min(0, quantile(sorted, 1 - INSIDE)), Math.max(0, quantile(sorted, INSIDE))];
    // Log-probabilities are negative: the least likely tokens have the strongest colour.
    const strength = high > -low ? (value: number) => value : (value: number) => -value;
    const limit = Math.max(high, -low);
    const color = (value: Num) => (value === null ? undefined : sequential(strength(value), 0, limit));
    return { ...kind, values, low: high > -low ? 0 : low, high: high > -low ? high : 0, color, strength };
  }
  const centre = kind.centre;
  const limit = Math.max(quantile(sorted, INSIDE) - centre, centre - quantile(sorted, 1 - INSIDE));
  const color = (value: Num) => (value === null ? undefined : diverging(value - centre, limit));
  const strength = (value: number) => Math.abs(value - centre);
  return { ...kind, values, low: centre - limit, high: centre + limit, color, strength };
}

/** Positions of the tokens that stand out most, in their order. */
export function extremesOf(scale: Scale): number[] {
  const places = scale.values.flatMap((value, position) => (value === null ? [] : [position]));
  const strength = (position: number) => scale.strength(scale.values[position] ?? 0);
  places.sort((one, other) => strength(other) - strength(one));
  return places.slice(0, EXTREMES).sort((one, other) => one - other);
}

function quantile(sorted: Float64Array, share: number): number {
  return sorted[Math.round(share * (sorted.length - 1))] ?? 0;
}
