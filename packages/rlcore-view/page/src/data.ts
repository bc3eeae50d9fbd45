// Hooks that ask the server, and ask again while a run goes.
import { useEffect, useRef, useState } from "preact/hooks";
import { api, type Group, isReport, type State } from "./api";

export interface Answer<T> {
  /** Undefined until the first answer; the last one while the next is loaded, unless the question changed. */
  value: T | undefined;
  problem: (Error & { fix?: string }) | undefined;
}

/** Ask whenever "question" differs, which identifies what is asked, and again, without clearing the answer, whenever
 *  "fresh" differs. */
export function useAnswer<T>(ask: (signal: AbortSignal) => Promise<T>, question: string, fresh = ""): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T> & { question: string }>({
    value: undefined,
    problem: undefined,
    question,
  });
  useEffect(() => {
    const abort = new AbortController();
    ask(abort.signal)
      .then((value) => {
        if (!abort.signal.aborted) setAnswer({ value, problem: undefined, question });
      })
      .catch((problem) => {
        if (abort.signal.aborted) return;
        setAnswer((last) => ({ value: last.question === question ? last.value : undefined, problem, question }));
      });
    return () => abort.abort();
  }, [question, fresh]);
  return answer.question === question ? answer : { value: undefined, problem: undefined };
}

/** A group with all its trajectories. */
export function useGroup(run: string, purpose: string, step: number, group: number): Answer<Group> {
  const question = ["group", run, purpose, step, group].join("/");
  return useAnswer((signal) => api.group(run, purpose, step, group, signal), question);
}

const EVERY_MS = 2000;

/** The state of a run, every two seconds while it goes and the page is visible. */
export function useRunState(run: string): State | undefined {
  const [state, setState] = useState<State>();
  const last = useRef("");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const abort = new AbortController();
    const look = async () => {
      if (!document.hidden) {
        const found = await api.state(run, abort.signal).catch(() => undefined);
        if (abort.signal.aborted) return;
        const text = JSON.stringify(found);
        if (found && text !== last.current) setState(found);
        last.current = text ?? last.current;
      }
      timer = setTimeout(look, EVERY_MS);
    };
    if (!isReport) void look();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [run]);
  return state;
}
