// Small pictures of trajectories in the rows of a table.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Row, thumbnailUrl } from "./api";
import type { Column } from "./table";

/** Rows that are scrolled past ask for nothing. */
const STAYS_MS = 100;

function Thumbnail({ address }: { address: string }) {
  const place = useRef<HTMLSpanElement>(null);
  const [wanted, setWanted] = useState(false);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const seen = new IntersectionObserver((entries) => {
      clearTimeout(timer);
      if (entries.at(-1)?.isIntersecting) timer = setTimeout(() => setWanted(true), STAYS_MS);
    });
    seen.observe(place.current!);
    return () => {
      clearTimeout(timer);
      seen.disconnect();
    };
  }, []);
  return (
    <span class="thumbnail" ref={place}>
      {wanted && address && <img src={address} alt="" onError={({ currentTarget }) => currentTarget.remove()} />}
    </span>
  );
}

/** A column of pictures. "named" is what a reader hears of the row. */
export function pictures<T>(run: string, row: (line: T) => Row, named: (line: T) => string): Column<T> {
  return {
    key: "picture",
    label: "",
    width: 72,
    value: named,
    show: (line) => {
      const { purpose, step, group, sibling } = row(line);
      return <Thumbnail key={`${purpose}/${step}/${group}/${sibling}`} address={thumbnailUrl(run, row(line))} />;
    },
  };
}
