// The frame of the page, and the view that belongs to the address.
import { useEffect, useRef, useState } from "preact/hooks";
import { go, link, useAddress } from "./address";
import { isReport } from "./api";
import { CompareView } from "./compare";
import { CompareLink } from "./evaluations";
import { FindView } from "./find";
import { printable } from "./format";
import { GroupView } from "./group";
import { listen, useKeys } from "./keyboard";
import { RunView } from "./run";
import { RunsView } from "./runs";
import { StepView } from "./step";
import { applyTheme, toggleTheme, useDark } from "./theme";
import { TrajectoryView } from "./trajectory";
import { Keys } from "./ui";

applyTheme();
listen();

export function App() {
  const { path } = useAddress();
  const [help, setHelp] = useState(false);
  const run = path[0] === "run" ? path[1] : undefined;
  useGeneralKeys(run, () => setHelp(true));
  useEffect(() => {
    document.title = run ? `${printable(path.slice(1).join(" / "))} – rlcore` : "rlcore";
  }, [path.join("/")]);
  const main = useRef<HTMLElement>(null);
  const opened = useRef(false);
  useEffect(() => {
    scrollTo(0, 0);
    // What was followed is gone; the next Tab and a screen reader go on in the new view.
    if (opened.current) main.current?.focus();
    opened.current = true;
  }, [path.join("/")]);
  return (
    <>
      <Bar run={run} place={path[2]} onHelp={() => setHelp(true)} />
      <main ref={main} tabIndex={-1}>
        <View path={path} />
      </main>
      {help && <Keys onClose={() => setHelp(false)} />}
    </>
  );
}

function View({ path }: { path: string[] }) {
  const [first, run, purpose, ...rest] = path;
  if (!path.length) return <RunsView />;
  const [step, group, sibling] = rest.map(Number);
  const isPlace = rest.every((part) => /^\d+$/.test(part)) && rest.length <= 3;
  if (first === "run" && run !== undefined && isPlace) {
    const shared = { run, purpose: purpose ?? "", step: step ?? 0 };
    if (purpose === undefined) return <RunView key={run} run={run} />;
    if (purpose === "find") return <FindView key={run} run={run} />;
    if (purpose === "compare") return <CompareView key={run} run={run} />;
    if (purpose !== "train" && purpose !== "evaluation") return <NoPage />;
    if (sibling !== undefined && group !== undefined)
      return <TrajectoryView {...shared} group={group} sibling={sibling} />;
    if (group !== undefined) return <GroupView {...shared} group={group} />;
    if (step !== undefined) return <StepView key={run} {...shared} />;
  }
  return <NoPage />;
}

function NoPage() {
  return (
    <div class="muted empty">
      <h1>There is no such page</h1>
      <a href={link([])}>Show all runs</a>
    </div>
  );
}

function Bar({ run, place, onHelp }: { run: string | undefined; place: string | undefined; onHelp: () => void }) {
  const dark = useDark();
  return (
    <header class="topbar">
      <a class="brand" href={link([])}>
        rlcore
      </a>
      <nav aria-label="Views">
        <a href={link([])} aria-current={run === undefined ? "page" : undefined}>
          Runs
        </a>
        {run !== undefined && (
          <a href={link(["run", run])} aria-current={place === undefined ? "page" : isStep(place) ? "true" : undefined}>
            {printable(run)}
          </a>
        )}
        {run !== undefined && !isReport && (
          <a href={link(["run", run, "find"])} aria-current={place === "find" ? "page" : undefined}>
            Find
          </a>
        )}
        {run !== undefined && <CompareLink key={run} run={run} current={place === "compare"} />}
      </nav>
      <button onClick={toggleTheme} aria-label={dark ? "Light theme" : "Dark theme"}>
        {dark ? "Light" : "Dark"}
      </button>
      <button onClick={onHelp} aria-label="Keys">
        ?
      </button>
    </header>
  );
}

const isStep = (place: string) => place === "train" || place === "evaluation";

function useGeneralKeys(run: string | undefined, help: () => void): void {
  const click = (selector: string) => () => document.querySelector<HTMLElement>(selector)?.click();
  useKeys([
    { key: "?", does: "show the keys", press: help },
    { key: "j", does: "next row of the table", press: () => moveInTable("j") },
    { key: "k", does: "previous row of the table", press: () => moveInTable("k") },
    { key: "Enter", does: "open the selected row" },
    { key: "[", does: "previous step, group or trajectory", press: click("a[rel=prev]") },
    { key: "]", does: "next step, group or trajectory", press: click("a[rel=next]") },
    { key: "/", does: "go to the filter", press: () => document.querySelector<HTMLElement>("[data-filter]")?.focus() },
    {
      key: "u",
      does: "one level up",
      press: () => [...document.querySelectorAll<HTMLElement>(".crumbs a")].at(-1)?.click(),
    },
    { key: "g r", does: "all runs", press: () => go(link([])) },
    ...(run && !isReport
      ? [{ key: "g f", does: "find trajectories", press: () => go(link(["run", run, "find"])) }]
      : []),
    { key: "d", does: "dark or light", press: toggleTheme },
  ]);
}

/** The first table takes the key if none has the focus. */
function moveInTable(key: string): void {
  const table = document.querySelector<HTMLElement>("[role=grid]");
  table?.focus();
  table?.dispatchEvent(new KeyboardEvent("keydown", { key }));
}
