// Colour scales. The colours themselves are variables of style.css, one value for each theme. As backgrounds they keep
// a contrast of 4.5 to the text.

/** Blue for negative values, none at zero, orange for positive ones; saturated at "limit". */
export function diverging(value: number, limit: number): string {
  return mix(value < 0 ? "--scale-low" : "--scale-high", limit > 0 ? Math.abs(value) / limit : 0);
}

/** None at "low", saturated at "high". */
export function sequential(value: number, low: number, high: number): string {
  return mix("--scale-sequential", high > low ? (value - low) / (high - low) : 0);
}

/** In steps of 5 %, so that tokens share few distinct colours. */
function mix(variable: string, share: number): string {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 20) * 5;
  return percent ? `color-mix(in srgb, var(${variable}) ${percent}%, transparent)` : "transparent";
}

export const SERIES = 8;

/** Colour of a line. */
export function series(index: number): string {
  return `var(--series-${((index % SERIES) + SERIES) % SERIES})`;
}

/** A colour as a canvas understands it, in the present theme. */
export function resolved(color: string): string {
  const probe = document.createElement("span");
  probe.style.color = color;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
