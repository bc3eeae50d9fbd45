export function stepName(purpose: string, step: number): string {
  return `${purpose === "train" ? "Training step" : "Evaluation at step"} ${step}`;
}

/** A link to the one before or after; without an address, only its sign. */
export function StepLink({ href, label }: { href: string; label: "Previous" | "Next" }) {
  const [sign, key, relation] = label === "Previous" ? ["‹", "[", "prev"] : ["›", "]", "next"];
  if (!href) {
    return (
      <span class="step" aria-hidden="true">
        {sign}
      </span>
    );
  }
  return (
    <a class="step" rel={relation} href={href} aria-label={label} title={`${label} (${key})`}>
      {sign}
    </a>
  );
}
