// Keys of the page. Views register theirs with "useKeys"; the help shows those that work at the moment.
import { useEffect, useRef } from "preact/hooks";

export interface Key {
  /** As in KeyboardEvent.key, or two of them with a space between: "g r". */
  key: string;
  does: string;
  /** Absent for a key that a component handles itself, which is only listed in the help. */
  press?: () => void;
}

const registered = new Set<{ current: Key[] }>();
/** Time to press the second key of two. */
const SECOND_KEY_MS = 1500;

/** Keys that work while the component is shown and nobody types into a field. A later component wins. */
export function useKeys(keys: Key[]): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    registered.add(latest);
    return () => void registered.delete(latest);
  }, []);
}

export function presentKeys(): Key[] {
  return [...registered].reverse().flatMap((keys) => keys.current);
}

let first = { key: "", at: 0 };

export function listen(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const pair = performance.now() - first.at < SECOND_KEY_MS ? `${first.key} ${event.key}` : "";
    const keys = presentKeys().filter(({ press }) => press);
    const found = keys.find(({ key }) => key === pair) ?? keys.find(({ key }) => key === event.key);
    first = { key: found ? "" : event.key, at: performance.now() };
    if (!found?.press) return;
    event.preventDefault();
    found.press();
  });
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable ||
      target instanceof HTMLTextAreaElement ||
      target instanceof HTMLSelectElement ||
      (target instanceof HTMLInputElement && !["checkbox", "radio", "button"].includes(target.type)))
  );
}
