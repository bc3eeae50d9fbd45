// Numbers, durations, dates and hostile texts as a person reads them.
import type { Num } from "./api";

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** An absent value is a dash; very small and very large values have an exponent. "digits" are those after the point of
 *  values below 10; larger ones have fewer. */
export function number(value: Num | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return exponential(value);
  if (Number.isInteger(value) || size >= 1000) return GROUPED.format(value + 0).replace(/^-/, "−"); // -0 + 0 is 0
  if (size !== 0 && size < 0.5 * 10 ** -digits) return exponential(value);
  const after = Math.max(0, digits - (size < 10 ? 0 : size < 100 ? 1 : 2));
  return value.toFixed(after).replace(/^-/, "−");
}

function exponential(value: number): string {
  return value.toExponential(1).replace("e+", "e").replace(/-/g, "−");
}

export function seconds(value: Num | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value > 0 && value < 0.00005) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  if (value < 59.5) return `${value.toFixed(value < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function gibibytes(value: Num | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return value < 0.995 ? `${number(value * 1024, 0)} MiB` : `${number(value, 2)} GiB`;
}

/** Such as "1 token" and "2,048 tokens". */
export function count(n: number, what: string): string {
  if (n === 1) return `1 ${what}`;
  const plural = /[^aeiou]y$/.test(what)
    ? `${what.slice(0, -1)}ies`
    : /(s|x|ch|sh)$/.test(what)
      ? `${what}es`
      : `${what}s`;
  return `${GROUPED.format(n)} ${plural}`;
}

/** A failure of a reward begins with what the judge said, which tells failures apart. */
export function failureText(failure: string): string {
  return failure.replace(/^reward: reward (.+?): ([^]+)$/, "$2 ($1)");
}

/** Local date and time of a Unix time. */
export function date(unix: Num | undefined): string {
  if (unix === null || unix === undefined) return "–";
  const at = new Date(unix * 1000);
  if (Number.isNaN(at.getTime())) return "–";
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

// Control characters except tab and line feed, characters that set the direction of text or have no width, line
// separators, halves of surrogate pairs, and the invisible "tag" characters.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Cs}/gu;

/** The text with its control and bidirectional characters as visible escapes such as \u202e. */
export function printable(text: string): string {
  return text.replace(HIDDEN, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}
