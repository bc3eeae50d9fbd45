// Rows of an index by group, as lines of a table.
import type { Num, Row } from "./api";
import { count, number, printable } from "./format";
import { narrowed } from "./table";
import { pictures } from "./thumbnail";
import { Clipped, type Column, type Kind, Pill } from "./ui";

export interface GroupLine {
  key: string;
  /** Step in which it was sampled, which differs from the shown step if the group was carried over. */
  step: number;
  group: number;
  task: string;
  environment: string;
  rows: Row[];
  mean: Num;
  spread: Num;
  best: Num;
  worst: Num;
}

/** Reasons of the index in words. */
export const WHY: Record<string, string> = {
  equal: "equal rewards",
  all_right: "all right",
  all_wrong: "all wrong",
  not_scored: "too few scored",
  surplus: "surplus",
};

const FATES: Record<string, { kind: Kind; title: string }> = {
  kept: { kind: "good", title: "The group was trained." },
  dropped: { kind: "warn", title: "The group was not trained." },
  carried: { kind: "accent", title: "The group was left for a later step." },
};

export function groupsOf(rows: Row[]): GroupLine[] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const key = `${row.step}-${row.group}`;
    const siblings = groups.get(key);
    if (siblings) siblings.push(row);
    else groups.set(key, [row]);
  }
  return [...groups].map(([key, siblings]) => {
    const [first] = siblings as [Row];
    const rewards = siblings.map(({ reward }) => reward).filter((reward) => reward !== null);
    const { step, group, task, environment } = first;
    const [best, worst] = rewards.length ? [Math.max(...rewards), Math.min(...rewards)] : [null, null];
    return {
      key,
      step,
      group,
      task,
      environment,
      rows: siblings,
      mean: first.mean ?? null,
      spread: first.spread ?? null,
      best,
      worst,
    };
  });
}

/** Columns that have something to show for these groups. "pictured" is their run, if they have pictures. */
export function columnsOf(groups: GroupLine[], pictured: string | null): Column<GroupLine>[] {
  const rows = groups.flatMap((group) => group.rows);
  const [low, high] = extent(rows.map(({ reward }) => reward));
  const several = groups.some((group) => group.rows.length > 1);
  const numeric = (
    key: string,
    label: string,
    width: number,
    value: (group: GroupLine) => Num | undefined,
  ): Column<GroupLine> => ({
    key,
    label,
    width,
    numeric: true,
    value,
    show: (group) => number(value(group)),
  });
  const columns: (Column<GroupLine> | false)[] = [
    pictured !== null && pictures(pictured, ({ rows: [first] }) => first!, ({ group }) => `group ${group}`),
    numeric("group", "Group", 68, ({ group }) => group),
    { key: "task", label: "Task", width: 150, value: ({ task }) => task, show: ({ task }) => <Clipped text={task} /> },
    groups.some(({ environment }) => environment) && {
      key: "environment",
      label: "Environment",
      width: 110,
      value: ({ environment }) => environment,
      show: ({ environment }) => printable(environment),
    },
    rows.some(({ fate }) => fate) && {
      key: "fate",
      label: "Fate",
      width: 180,
      value: ({ rows }) => `${rows[0]?.fate ?? ""} ${rows[0]?.why ?? ""}`,
      show: ({ rows }) => <Fate row={rows[0]} />,
    },
    numeric("mean", several ? "Mean" : "Reward", 74, ({ mean }) => mean),
    several && numeric("spread", "Spread", 74, ({ spread }) => spread),
    several && {
      key: "rewards",
      label: "Rewards",
      width: 130,
      value: ({ mean }) => mean,
      show: ({ rows }) => <Dots values={rows.map(({ reward }) => reward)} low={low} high={high} />,
    },
    rows.some(isUnscored) && {
      key: "unscored",
      label: "Unscored",
      width: 88,
      numeric: true,
      value: ({ rows }) => rows.filter(isUnscored).length,
      show: (group) => <Unscored rows={group.rows} />,
    },
    several && numeric("best", "Best", 66, ({ best }) => best),
    several && numeric("worst", "Worst", 66, ({ worst }) => worst),
    {
      key: "tokens",
      label: "Tokens",
      width: 92,
      numeric: true,
      value: ({ rows }) => Math.max(...rows.map(({ tokens }) => tokens)),
      show: ({ rows }) => range(rows.map(({ tokens }) => tokens)),
    },
    {
      key: "turns",
      label: "Turns",
      width: 70,
      numeric: true,
      value: ({ rows }) => Math.max(...rows.map(({ turns }) => turns)),
      show: ({ rows }) => range(rows.map(({ turns }) => turns)),
    },
    {
      key: "stop",
      label: "Stop",
      width: 110,
      value: ({ rows }) => stops(rows),
      show: ({ rows }) => <Clipped text={stops(rows)} />,
    },
    rows.some(({ staleness }) => staleness) && numeric("staleness", "Stale", 66, ({ rows }) => rows[0]?.staleness),
  ];
  return narrowed(
    columns.filter((column) => column !== false),
    ["picture", "group", "mean", "fate", "rewards", "task"],
  );
}

const isUnscored = ({ reward }: Row) => reward === null;

function Unscored({ rows }: { rows: Row[] }) {
  const unscored = rows.filter(isUnscored).length;
  if (!unscored) return null;
  return (
    <Pill kind="bad" title={`${unscored} of ${count(rows.length, "trajectory")} without a reward`}>
      {unscored}
    </Pill>
  );
}

function Fate({ row }: { row: Row | undefined }) {
  if (!row?.fate) return null;
  return (
    <>
      <Pill {...FATES[row.fate]}>{printable(row.fate)}</Pill>{" "}
      {row.why && <span class="muted">{printable(WHY[row.why] ?? row.why)}</span>}
    </>
  );
}

function extent(values: Num[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low < high ? [low, high] : [low - 1, high + 1];
}

function range(values: number[]): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low === high ? number(low) : `${number(low)} – ${number(high)}`;
}

function stops(rows: Row[]): string {
  return [...new Set(rows.map(({ stop }) => stop))].join(", ");
}

const WIDTH = 112;

/** A dot for each reward of the siblings; its size says how many have it. */
function Dots({ values, low, high }: { values: Num[]; low: number; high: number }) {
  const at = new Map<number, number>();
  for (const value of values) {
    if (value === null) continue;
    const x = Math.round(6 + ((value - low) / (high - low)) * (WIDTH - 12));
    at.set(x, (at.get(x) ?? 0) + 1);
  }
  const most = Math.max(1, ...at.values());
  return (
    <svg class="dots" width={WIDTH} height="20" role="img" aria-label={values.map((value) => number(value)).join(", ")}>
      <line x1="6" x2={WIDTH - 6} y1="10" y2="10" />
      {[...at].map(([x, found]) => (
        <circle key={x} cx={x} cy="10" r={2.5 + 4 * Math.sqrt(found / most)} />
      ))}
    </svg>
  );
}
