// When to ask again about a run in progress.
import { useRef } from "preact/hooks";
import type { State } from "./api";
import { useRunState } from "./data";

/** A text for "useAnswer" that differs when the run has changed since the view was opened. It is empty until then, so
 *  that nothing is loaded twice when a view opens. */
export function useFresh(run: string, part: (state: State) => string = JSON.stringify): string {
  const state = useRunState(run);
  const first = useRef<string>();
  if (!state) return "";
  const text = part(state);
  first.current ??= text;
  return text === first.current ? "" : text;
}

/** Whether the files of rollouts changed. */
export const filesOf = ({ files }: State): string => files;
