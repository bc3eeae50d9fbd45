// What the server answers, and how to ask it. A report contains the answers, by the same paths.

/** A number, or null where it is not finite or not known. */
export type Num = number | null;

export interface RunLine {
  /** Name of its folder; a second folder of the same name has "~2" after it. */
  id: string;
  path: string;
  recipe: string;
  model: string;
  environment: string;
  /** Unix time in seconds. */
  started: Num;
  /** Of many runs, some are unread at first: asking again reads them. */
  state: "running" | "ended" | "stopped" | "failed" | "damaged" | "unread";
  /** Why it is damaged or failed; otherwise empty. */
  problem: string;
  /** The last line of the output of a run that goes on and has not ended a step; otherwise empty. */
  activity: string;
  /** Last step with metrics, and the number of steps that were asked for. */
  step: number;
  steps: Num;
  /** Last values of "reward/mean", "evaluation/accuracy" and the losses. */
  last: Record<string, Num>;
  /** "reward/mean" or another curve, reduced to at most 60 values, for a small line. */
  spark: Num[];
}

export interface Runs {
  runs: RunLine[];
  /** Version of rlcore. */
  version: string;
  /** True in a report, which has no server. */
  report: boolean;
}

export interface Finding {
  rule: string;
  step: number;
  text: string;
  key: string;
  fix: string;
  /** "warn" or "fail". */
  status: string;
}

export interface StepFile {
  purpose: "train" | "evaluation";
  step: number;
  /** Whether the step is still sampled. */
  unfinished: boolean;
}

export interface Run extends RunLine {
  /** The configuration by dotted keys, as text, in the order of config.toml. Secrets are masked. */
  config: Record<string, string>;
  /** Where a value comes from, by the same keys: "default", "recipe …", "command line". */
  origins: Record<string, string>;
  /** What was typed. */
  command: string;
  /** Versions and machine: names and texts. */
  surroundings: Record<string, string>;
  /** Files of rollouts, ordered by step. */
  files: StepFile[];
  /** Steps that have a checkpoint. */
  checkpoints: number[];
  /** Whether tokens can be shown as text. */
  decodes: boolean;
}

/** A line of metrics.jsonl: "step", "time" and metrics. */
export type MetricsRow = Record<string, Num>;

export interface Metrics {
  rows: MetricsRow[];
  /** Ask with "?after=NEXT" for the lines that follow. */
  next: number;
}

/** A row of the index of a file of rollouts; docs/reference/run-directory.md explains the columns. */
export interface Row {
  purpose: "train" | "evaluation";
  step: number;
  group: number;
  sibling: number;
  /** In episodes in which the policy has several. */
  role?: string;
  task: string;
  environment: string;
  reward: Num;
  rewards: Record<string, Num>;
  stop: string;
  failure: string | null;
  tokens: number;
  turns: number;
  metrics: Record<string, Num>;
  versions?: [number, number];
  /** A large seed is a text with all its digits. */
  sampling?: Record<string, Num | string>;
  mean?: number;
  spread?: number;
  fate?: "kept" | "dropped" | "carried";
  why?: string;
  excluded?: boolean;
  trained_step?: number;
  trained_version?: number;
  staleness?: number;
  /** In answers of "find": what is around the text that was looked for. */
  match?: string;
}

export interface Rows {
  rows: Row[];
  unfinished: boolean;
  /** Whether trajectories have small pictures. */
  pictures: boolean;
}

export interface Found {
  /** At most as many as were asked for with "limit". */
  rows: Row[];
  total: number;
  /** Whether the search for a text ended early, because there are enough rows. */
  more?: boolean;
  /** Trajectories that were looked at. */
  searched: number;
  /** Names as a condition has them, such as "reward", "tool_errors" and 'metrics["tools/calculator"]'. */
  columns: string[];
  /** Whether trajectories have small pictures. */
  pictures: boolean;
  /** Which trajectories a report has. */
  about?: string;
}

/** The extreme tokens of a step, and how long its tools took. */
export interface Extremes {
  /** The highest ratio and the lowest log-probability. */
  tokens: { column: string; value: Num; step: number; group: number; sibling: number; segment: number; token: number }[];
  /** Their number and mean, and the slowest. */
  tools: { count: number; mean: number; name: string; seconds: number; group: number; sibling: number } | null;
}

export type Part = { text: string } | { image: string };

export interface ToolCall {
  name: string;
  /** The arguments as indented JSON; a single argument that has code or text is "code" instead. The first call of a
   *  turn that could not be read has what the policy wrote. */
  arguments: string;
  code: string;
  error: string | null;
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  parts: Part[];
  calls: ToolCall[];
  /** Name of the tool. */
  name: string;
}

/** A place on an image. Coordinates are fractions of its width and height, from the top left. */
export interface Mark {
  kind: "expected" | "given";
  point: [number, number] | null;
  box: [number, number, number, number] | null;
  label: string;
}

/** A picture with marks; "name" as "mediaUrl" wants it. */
export interface NotePicture {
  name: string;
  title: string;
  marks: Mark[];
}

export interface NoteFilm {
  name: string;
  title: string;
}

export interface NoteTable {
  title: string;
  columns: string[];
  rows: (string | number)[][];
}

/** Code that a turn ran. */
export interface Cell {
  code: string;
  output: string;
  error: string;
  pictures: NotePicture[];
}

/** What a plugin says about a turn. */
export interface TurnNote {
  /** Drawn on the last image of the observation before the turn. */
  marks: Mark[];
  lines: [string, string][];
  right: boolean | null;
  /** What the observation before the turn asks, in short. */
  asked: string | null;
  /** What the turn says besides its cells, in short. */
  said: string | null;
  /** Shown in place of the observation after the turn. */
  cells: Cell[];
  pictures: NotePicture[];
  films: NoteFilm[];
  tables: NoteTable[];
}

export interface Turn {
  kind: "observation" | "policy";
  /** Its tokens in the segment. */
  start: number;
  end: number;
  messages: Message[];
  reward: Num;
  finish_reason: string;
  /** Of the weights that sampled its first and its last token; one if they are equal. */
  versions: number[];
  note: TurnNote | null;
}

/** An array of a control episode: a row for each decision. */
export interface Series {
  name: string;
  /** Of one row. */
  shape: number[];
  /** The rows of a vector of at most 64 numbers, rounded; empty for pictures and larger arrays. */
  values: Num[][];
  /** Pictures by decision, as paths for "mediaUrl"; empty for numbers. */
  frames: string[];
}

export interface Segment {
  /** Messages that a rewritten context repeats. */
  context: Message[];
  turns: Turn[];
  tokens: number;
  series: Series[];
}

export interface Reward {
  id: string;
  value: Num;
  components: Record<string, Num>;
  error: string | null;
  /** What a judge said. */
  text: string;
}

export interface Time {
  kind: string;
  name: string;
  /** Seconds after the first start in the trajectory. */
  start: number;
  seconds: number;
}

export interface Trajectory {
  row: Row;
  segments: Segment[];
  /** Which plugins failed to describe the turns, and how; otherwise empty. */
  notes_problem: string;
  rewards: Reward[];
  failure: string | null;
  times: Time[];
}

export interface Group {
  task: string;
  environment: string;
  /** Fields of the task besides its messages, as text, such as the expected answer. */
  fields: Record<string, string>;
  /** The messages of the task. */
  prompt: Message[];
  tools: { name: string; description: string; parameters: string }[];
  trajectories: Trajectory[];
  /** Neighbours in the same file; null at an end. */
  previous: number | null;
  next: number | null;
  /** The last one of the previous group. */
  previous_sibling: number | null;
}

/** The tokens of a segment. All lists have one entry for each token. */
export interface SegmentTokens {
  ids: number[];
  /** The text of each token; empty if there is no tokenizer. Bytes of one character may be split over several tokens,
   *  of which the last has the text. */
  texts: string[];
  /** Whether the policy wrote it: only these tokens are trained. */
  trained: boolean[];
  /** By name, null where a token has none. "engine_logprob" exists in every run; "logprob", "advantage", "entropy",
   *  "ratio", "gap" (learner minus engine), "reference_logprob" and "value" where the step stored them. */
  columns: Record<string, Num[]>;
}

export interface Tokens {
  segments: SegmentTokens[];
  /** Why there are no values of trained tokens; empty if there are. */
  missing: string;
}

/** What changes while a run goes; the page asks for it every two seconds. */
export interface State {
  state: RunLine["state"];
  activity: string;
  step: number;
  /** Size of metrics.jsonl in bytes. */
  metrics: number;
  /** Names and sizes of the files of rollouts, as one text: it differs when any of them changed. */
  files: string;
}

export class Problem extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly fix: string,
  ) {
    super(message);
  }
}

/** The answers of a report, by path. */
const embedded: Record<string, unknown> | null = readEmbedded();

function readEmbedded(): Record<string, unknown> | null {
  const data = document.getElementById("rlcore-report");
  return data ? JSON.parse(data.textContent ?? "{}") : null;
}

export const isReport = embedded !== null;

function pathOf(parts: (string | number)[], query: Record<string, string | number | undefined>): string {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `api/${parts.map((part) => encodeURIComponent(String(part))).join("/")}${search && `?${search}`}`;
}

async function ask<T>(
  parts: (string | number)[],
  query: Record<string, string | number | undefined> = {},
  signal?: AbortSignal,
): Promise<T> {
  const path = pathOf(parts, query);
  if (embedded) {
    if (path in embedded) return embedded[path] as T;
    throw new Problem("This report does not contain it.", 404, "rlcore report --trajectories N keeps more");
  }
  const answer = await fetch(path, { signal }).catch((error) => {
    if (error instanceof DOMException) throw error;
    throw new Problem("The server does not answer.", 0, "start rlcore view again");
  });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(body.problem ?? answer.statusText, answer.status, body.fix ?? "");
  return body as T;
}

export const api = {
  runs: (signal?: AbortSignal) => ask<Runs>(["runs"], {}, signal),
  run: (run: string, signal?: AbortSignal) => ask<Run>(["runs", run], {}, signal),
  state: (run: string, signal?: AbortSignal) => ask<State>(["runs", run, "state"], {}, signal),
  findings: (run: string, signal?: AbortSignal) => ask<{ findings: Finding[] }>(["runs", run, "findings"], {}, signal),
  metrics: (run: string, after = 0, signal?: AbortSignal) =>
    ask<Metrics>(["runs", run, "metrics"], { after: after || undefined }, signal),
  rows: (run: string, purpose: string, step: number, signal?: AbortSignal) =>
    ask<Rows>(["runs", run, purpose, step], {}, signal),
  extremes: (run: string, purpose: string, step: number, signal?: AbortSignal) =>
    ask<Extremes>(["runs", run, purpose, step, "extremes"], {}, signal),
  group: (run: string, purpose: string, step: number, group: number, signal?: AbortSignal) =>
    ask<Group>(["runs", run, purpose, step, group], {}, signal),
  tokens: (run: string, purpose: string, step: number, group: number, sibling: number, signal?: AbortSignal) =>
    ask<Tokens>(["runs", run, purpose, step, group, sibling, "tokens"], {}, signal),
  /** "where" is a condition as of "rlcore data show --where"; "sort" a column, with "-" before it for descending order;
   *  "steps" such as "3-9". */
  find: (
    run: string,
    query: { where?: string; text?: string; sort?: string; purpose?: string; steps?: string; task?: string; limit?: number },
    signal?: AbortSignal,
  ) => ask<Found>(["runs", run, "find"], query, signal),
};

/** Whether a place of the page can be opened: a run, then purpose, step and group as far as they are given. A report has
 *  some of them, a server all. */
export function isStored(...place: (string | number)[]): boolean {
  return !embedded || pathOf(["runs", ...place], {}) in embedded;
}

/** The address of an image by its SHA-256, or of a frame, a picture of a note or a film by its path. */
export function mediaUrl(run: string, name: string): string {
  const path = `media/${encodeURIComponent(run)}/${name}`;
  return embedded ? String(embedded[path] ?? "") : path;
}

/** The address of the small picture of a trajectory; empty if a report does not have it. */
export function thumbnailUrl(run: string, { purpose, step, group, sibling }: Row): string {
  return mediaUrl(run, `small/${purpose}/${step}/${group}/${sibling}`);
}
