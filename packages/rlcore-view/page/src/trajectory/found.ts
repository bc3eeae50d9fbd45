// Marks a text that was searched for, wherever a trajectory shows it.
import { type RefObject } from "preact";
import { useLayoutEffect } from "preact/hooks";

const MOST = 1000;

/** Browsers without highlights show the page without marks. */
export function useFound(box: RefObject<HTMLElement>, text: string | undefined, shown: string): void {
  useLayoutEffect(() => {
    if (!text || !box.current || !("highlights" in CSS)) return;
    const ranges = rangesOf(box.current, text.toLowerCase());
    CSS.highlights.set("found", new Highlight(...ranges));
    ranges[0]?.startContainer.parentElement?.scrollIntoView({ block: "center" });
    return () => void CSS.highlights.delete("found");
  }, [text, shown]);
}

function rangesOf(box: HTMLElement, wanted: string): Range[] {
  const ranges: Range[] = [];
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && ranges.length < MOST; node = walker.nextNode()) {
    const said = node.textContent ?? "";
    const lower = said.toLowerCase();
    if (lower.length !== said.length) continue; // places would differ
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, at + wanted.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      ranges.push(range);
    }
  }
  return ranges;
}
