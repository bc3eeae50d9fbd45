// All values of one token, beside it.
import { useEffect, useState } from "preact/hooks";
import type { SegmentTokens } from "../api";
import { number, printable } from "../format";
import { columnNames, titleOf } from "./columns";

const WIDTH = 260;
/** More than its height, to decide whether it has room below the token. */
const HEIGHT = 260;

interface CardProps {
  tokens: SegmentTokens;
  /** -1 hides the card. */
  position: number;
  anchor: HTMLElement | null | undefined;
  column: string;
  isControl: boolean;
}

export function TokenCard({ tokens, position, anchor, column, isControl }: CardProps) {
  const [, setScrolled] = useState(0);
  useEffect(() => {
    const follow = (event: Event) => setScrolled(event.timeStamp);
    // The page and the box of the tokens scroll; such events do not bubble.
    addEventListener("scroll", follow, true);
    return () => removeEventListener("scroll", follow, true);
  }, []);
  // The first of its boxes: a token that ends with a line break has another one in the next line.
  const found = anchor?.getClientRects()[0];
  const box = anchor?.closest(".tokens")?.getBoundingClientRect();
  const rectangle = found && box && found.bottom > box.top && found.top < box.bottom ? found : undefined;
  const below = !rectangle || rectangle.bottom + HEIGHT < innerHeight;
  const place = rectangle && {
    left: `${Math.max(8, Math.min(rectangle.left, innerWidth - WIDTH - 16))}px`,
    ...(below ? { top: `${rectangle.bottom + 6}px` } : { bottom: `${innerHeight - rectangle.top + 6}px` }),
  };
  return (
    <div class="token-card" role="status" hidden={!rectangle} style={{ width: `${WIDTH}px`, ...place }}>
      {rectangle && (
        <>
          {!isControl && <code class="quoted">{printable(JSON.stringify(tokens.texts[position] ?? ""))}</code>}
          <dl>
            <Line name={isControl ? "decision" : "position"} value={position.toLocaleString("en")} />
            {!isControl && (
              <>
                <Line name="id" value={String(tokens.ids[position])} />
                <Line name="written by the policy" value={tokens.trained[position] ? "yes" : "no"} />
              </>
            )}
            {columnNames(tokens)
              .filter((name) => name !== "mask")
              .map((name) => (
                <Line
                  name={titleOf(name)}
                  value={number(tokens.columns[name]?.[position], 4)}
                  isChosen={name === column}
                  key={name}
                />
              ))}
          </dl>
        </>
      )}
    </div>
  );
}

function Line({ name, value, isChosen }: { name: string; value: string; isChosen?: boolean }) {
  return (
    <div class={isChosen ? "chosen" : undefined}>
      <dt>{printable(name)}</dt>
      <dd>{value}</dd>
    </div>
  );
}
