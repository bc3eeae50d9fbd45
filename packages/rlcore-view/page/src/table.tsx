// A table of which only the visible rows are in the document, so that 100,000 rows scroll smoothly.
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { go } from "./address";
import { isReport } from "./api";

export interface Column<T> {
  key: string;
  label: string;
  /** Orders the rows, and is shown unless there is "show". */
  value: (row: T) => string | number | null | undefined;
  show?: (row: T) => ComponentChildren;
  /** Right-aligned, and sorted in descending order first. */
  numeric?: boolean;
  /** Smallest width in pixels; wider tables share the rest in proportion. */
  width: number;
  /** Shown when the pointer rests on the label. */
  help?: string;
}

interface TableProps<T> {
  /** For screen readers. */
  label: string;
  rows: T[];
  columns: Column<T>[];
  /** Identifies a row, also after new rows arrived. */
  id: (row: T) => string;
  /** Null for a row that a report does not contain. */
  href: (row: T) => string | null;
  /** What Space does with the selected row. */
  onSpace?: (row: T) => void;
  /** Key of a column, with "-" before it for descending order. Without "onSort", the table keeps its own. */
  sort?: string;
  onSort?: (sort: string) => void;
  /** False if the rows come sorted. */
  sorts?: boolean;
  /** Largest height in CSS. */
  height?: string;
  /** Whether the rows have room for pictures. */
  tall?: boolean;
  empty?: string;
}

/** A table that fits without the bar that scrolls it vertically gives its columns less, and does not scroll twice. */
const BAR_PX = 18;
const ROW_PX = 30;
const TALL_PX = 54;
/** Rows beyond the visible ones, so that rows are rendered anew only after several were scrolled. */
const MARGIN = 12;

/** Scroll places and selections of tables, to restore them on the way back. */
const places = new Map<string, { top: number; selected: string }>();

export function DataTable<T>(props: TableProps<T>) {
  const { label, rows, columns, id, href, height = "min(60vh, 640px)", empty = "There are no rows." } = props;
  const rowPx = props.tall ? TALL_PX : ROW_PX;
  const [ownSort, setOwnSort] = useState(props.sort ?? "");
  const sort = props.onSort ? (props.sort ?? "") : ownSort;
  const sorted = useMemo(() => (props.sorts === false ? rows : sortedBy(rows, columns, sort)), [rows, sort]);

  const place = `${location.hash.split("?")[0]} ${label}`;
  const box = useRef<HTMLDivElement>(null);
  const [from, setFrom] = useState(0);
  const [visible, setVisible] = useState(24);
  const [selected, setSelected] = useState(places.get(place)?.selected ?? "");

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const kept = places.get(place);
    if (kept) element.scrollTop = kept.top;
    const measure = () => setVisible(Math.ceil(element.clientHeight / rowPx) + 1);
    const sizes = new ResizeObserver(measure);
    sizes.observe(element);
    return () => sizes.disconnect();
  }, [rows.length === 0, rowPx]);

  const remember = (change: Partial<{ top: number; selected: string }>) =>
    places.set(place, { top: box.current?.scrollTop ?? 0, selected, ...change });
  const scrolled = () => {
    const top = box.current?.scrollTop ?? 0;
    remember({ top });
    setFrom(Math.floor(top / rowPx / MARGIN) * MARGIN);
  };
  const select = (index: number) => {
    const at = Math.min(sorted.length - 1, Math.max(0, index));
    const row = sorted[at];
    const element = box.current;
    if (!row || !element) return;
    setSelected(id(row));
    remember({ selected: id(row) });
    const room = element.clientHeight - ROW_PX - rowPx; // without the header, which sticks to the top
    element.scrollTop = Math.min(at * rowPx, Math.max(element.scrollTop, at * rowPx - room));
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.target !== event.currentTarget && ["Enter", " "].includes(event.key)) return; // a button or a link inside
    const at = sorted.findIndex((row) => id(row) === selected);
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / rowPx) - 2);
    const moves: Record<string, number> = {
      ...{ j: at + 1, ArrowDown: at + 1, k: at - 1, ArrowUp: at - 1 },
      ...{ PageDown: at + page, PageUp: at - page, Home: 0, End: sorted.length - 1 },
    };
    const to = moves[event.key];
    const row = sorted[at];
    const target = row && href(row);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (to !== undefined) select(to);
    else if (event.key === "Enter" && target) go(target);
    else if (event.key === " " && row && props.onSpace) props.onSpace(row);
    else return;
    event.preventDefault();
  };
  const sortBy = (column: Column<T>) => {
    const [once, twice] = column.numeric ? [`-${column.key}`, column.key] : [column.key, `-${column.key}`];
    const next = sort === once ? twice : once;
    if (props.onSort) props.onSort(next);
    else setOwnSort(next);
  };

  if (!rows.length) return <p class="muted empty">{empty}</p>;
  const isPartial = isReport && rows.some((row) => href(row) === null);
  const first = Math.max(0, Math.min(from, sorted.length - visible) - MARGIN);
  const shown = sorted.slice(first, first + visible + 3 * MARGIN);
  const tracks = columns.map(({ width }) => `minmax(0, ${width}fr)`).join(" ");
  const width = columns.reduce((sum, column) => sum + column.width, 0) + 24 - BAR_PX;
  const table = (
    <div
      class="table"
      role="grid"
      ref={box}
      tabIndex={0}
      aria-label={label}
      aria-rowcount={sorted.length + 1}
      aria-activedescendant={selected ? `${label} ${selected}`.replaceAll(" ", "-") : undefined}
      style={{ maxHeight: height }}
      onScroll={scrolled}
      onKeyDown={pressed}
    >
      <div class="rows" role="rowgroup" style={{ height: `${ROW_PX + sorted.length * rowPx}px`, minWidth: `${width}px` }}>
        <div class="row head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: tracks }}>
          {columns.map((column) => (
            <div
              key={column.key}
              role="columnheader"
              class={column.numeric ? "numeric" : ""}
              aria-sort={sort === column.key ? "ascending" : sort === `-${column.key}` ? "descending" : "none"}
            >
              {column.label ? (
                <button title={column.help} onClick={() => sortBy(column)}>
                  {column.label}
                </button>
              ) : (
                <span class="hidden">{column.key}</span>
              )}
            </div>
          ))}
        </div>
        {shown.map((row, index) => (
          <div
            key={id(row)}
            id={`${label} ${id(row)}`.replaceAll(" ", "-")}
            class={`row ${id(row) === selected ? "selected" : ""} ${href(row) === null ? "absent" : ""}`}
            title={href(row) === null ? "This report does not contain it." : undefined}
            role="row"
            aria-rowindex={first + index + 2}
            aria-selected={id(row) === selected}
            style={{ gridTemplateColumns: tracks, top: `${ROW_PX + (first + index) * rowPx}px`, height: `${rowPx}px` }}
          >
            {columns.map((column, at) => (
              <div key={column.key} role="gridcell" class={column.numeric ? "numeric" : ""}>
                {at === 0 && <RowLink href={href(row)} label={String(column.value(row) ?? "")} />}
                {column.show ? column.show(row) : column.value(row)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
  if (!isPartial) return table;
  return (
    <>
      {table}
      <p class="muted remark">
        The rows in grey are not in this report. <code>rlcore report --trajectories N</code> keeps more.
      </p>
    </>
  );
}

/** Covers the row, and has the title of what is under the pointer, which it would hide. */
function RowLink({ href, label }: { href: string | null; label: string }) {
  if (href === null) return null;
  const moved = ({ currentTarget: link, clientX, clientY }: JSX.TargetedMouseEvent<HTMLAnchorElement>) => {
    const below = document.elementsFromPoint(clientX, clientY).filter((element) => element !== link);
    link.title = below.find((element) => element.hasAttribute("title"))?.getAttribute("title") ?? "";
  };
  return <a class="whole" href={href} tabIndex={-1} aria-label={label} onMouseMove={moved} />;
}

/** Rows without a value come last in both directions. */
function sortedBy<T>(rows: T[], columns: Column<T>[], sort: string): T[] {
  const column = columns.find(({ key }) => key === sort.replace(/^-/, ""));
  if (!column) return rows;
  const sign = sort.startsWith("-") ? -1 : 1;
  const keyed = rows.map((row) => ({ row, value: column.value(row) ?? null }));
  keyed.sort((left, right) => {
    if (left.value === null || right.value === null) return Number(left.value === null) - Number(right.value === null);
    if (typeof left.value === "number" && typeof right.value === "number") return sign * (left.value - right.value);
    return sign * collator.compare(String(left.value), String(right.value));
  });
  return keyed.map(({ row }) => row);
}

const collator = new Intl.Collator("en", { numeric: true });

/** On a narrow screen, the columns with these keys come first: they are seen without scrolling. */
export function narrowed<T>(columns: Column<T>[], keys: string[]): Column<T>[] {
  if (!matchMedia("(max-width: 640px)").matches) return columns;
  const first = keys.flatMap((key) => columns.filter((column) => column.key === key));
  return [...first, ...columns.filter((column) => !first.includes(column))];
}
