// Small components that all views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { printable } from "./format";
import { presentKeys } from "./keyboard";

export { DataTable, type Column } from "./table";

export function Loading() {
  return (
    <p class="loading" role="status">
      Loading…
    </p>
  );
}

export function ProblemBox({ problem }: { problem: Error & { fix?: string } }) {
  return (
    <div class="problem" role="alert">
      <p>{printable(problem.message)}</p>
      {problem.fix && <p class="muted">To fix it: {printable(problem.fix)}</p>}
    </div>
  );
}

export type Kind = "good" | "bad" | "warn" | "accent" | "plain";

interface PillProps {
  kind?: Kind;
  title?: string;
  children: ComponentChildren;
}

export function Pill({ kind = "plain", title, children }: PillProps) {
  return (
    <span class={`pill ${kind}`} title={title}>
      {children}
    </span>
  );
}

export interface Crumb {
  label: string;
  href?: string;
}

export function Crumbs({ items }: { items: Crumb[] }) {
  return (
    <nav class="crumbs" aria-label="Place">
      <ol>
        {items.map(({ label, href }) => (
          <li key={label}>{href ? <a href={href}>{printable(label)}</a> : <h1>{printable(label)}</h1>}</li>
        ))}
      </ol>
    </nav>
  );
}

interface PanelProps {
  title: ComponentChildren;
  children: ComponentChildren;
  actions?: ComponentChildren;
}

export function Panel({ title, children, actions }: PanelProps) {
  return (
    <section class="panel">
      <header>
        <h2>{title}</h2>
        {actions && <div class="actions">{actions}</div>}
      </header>
      <div class="body">{children}</div>
    </section>
  );
}

/** A line that a cell may cut; the pointer shows all of it. */
export function Clipped({ text }: { text: string }) {
  const shown = printable(text);
  return <span title={shown}>{shown}</span>;
}

/** A field that "/" focuses. */
export function Filter({ value, label, onChange }: { value: string; label: string; onChange: (text: string) => void }) {
  return (
    <input
      class="filter"
      type="search"
      data-filter
      aria-label={label}
      placeholder={label}
      value={value}
      onInput={(event) => onChange(event.currentTarget.value)}
    />
  );
}

/** Help on the keys that work in the present view. */
export function Keys({ onClose }: { onClose: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const keys = new Map(presentKeys().map(({ key, does }) => [does, key]));
  return (
    <dialog ref={dialog} class="keys" aria-label="Keys" onClose={onClose} onClick={() => dialog.current?.close()}>
      <h2>Keys</h2>
      <dl>
        {[...keys].map(([does, key]) => (
          <div key={does}>
            <dt>
              {key.split(" ").map((part) => (
                <kbd key={part}>{part}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <button autofocus>Close</button>
    </dialog>
  );
}
