// The place in the page, as the part of the address after "#": every view can be linked, and "back" works.
import { useEffect, useState } from "preact/hooks";

export interface Address {
  /** Such as ["run", "first", "train", "7", "3", "0"]. */
  path: string[];
  /** What follows "?" in it: choices of a view, such as the column that colours the tokens. */
  query: Record<string, string>;
}

export function parse(hash: string): Address {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** The "href" of a place. Entries of the query that are empty or undefined are left out. */
export function link(path: (string | number)[], query: Record<string, string | number | undefined> = {}): string {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return `#/${path.map((part) => encodeURIComponent(String(part))).join("/")}${search && `?${search}`}`;
}

/** Change the query of the present place, without a new entry in the history. */
export function choose(changes: Record<string, string | number | undefined>): void {
  const { path, query } = parse(location.hash);
  history.replaceState(null, "", link(path, { ...query, ...changes }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function go(href: string): void {
  location.hash = href;
}

export function useAddress(): Address {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    changed(); // it may have changed since the first rendering
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
