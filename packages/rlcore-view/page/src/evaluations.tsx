// The evaluations of a run that can be compared.
import { link } from "./address";
import { api, isReport, type Run } from "./api";
import { useAnswer } from "./data";

/** Steps of the evaluations whose rollouts are stored; in a report only those that it contains. */
export async function evaluationsOf(run: Run): Promise<number[]> {
  const steps = run.files.filter(({ purpose }) => purpose === "evaluation").map(({ step }) => step);
  if (!isReport) return steps;
  const contained = steps.map((step) =>
    api.rows(run.id, "evaluation", step).then(
      () => [step],
      () => [],
    ),
  );
  return (await Promise.all(contained)).flat();
}

/** Absent unless the run has two evaluations. */
export function CompareLink({ run, current = false }: { run: string; current?: boolean }) {
  const { value } = useAnswer(async (signal) => evaluationsOf(await api.run(run, signal)), run);
  if (!value || value.length < 2) return null;
  return (
    <a href={link(["run", run, "compare"])} aria-current={current ? "page" : undefined}>
      Compare
    </a>
  );
}
