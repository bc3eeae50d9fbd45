// A picture with marks, which can be enlarged.
import { useRef, useState } from "preact/hooks";
import { mediaUrl, type Mark } from "../api";
import { printable } from "../format";

interface PictureProps {
  run: string;
  /** As "mediaUrl" wants it. */
  name: string;
  marks?: Mark[];
}

export function Picture({ run, name, marks = [] }: PictureProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [opened, setOpened] = useState(false);
  const [failed, setFailed] = useState(false);
  const address = mediaUrl(run, name);
  if (failed || !address) return <p class="no-picture">This picture cannot be shown. {printable(name.slice(0, 12))}</p>;
  const label = ["Enlarge the picture", ...marks.map(nameOf)].join(". ");
  const open = () => {
    setOpened(true);
    dialog.current?.showModal();
  };
  return (
    <>
      <button type="button" class="picture" onClick={open} aria-label={label}>
        <img src={address} alt="" loading="lazy" onError={() => setFailed(true)} />
        <Marks marks={marks} />
      </button>
      <dialog
        ref={dialog}
        class="enlarged"
        aria-label="Picture"
        onClick={() => dialog.current?.close()}
        onClose={() => setOpened(false)}
      >
        {opened && (
          <div class="picture">
            <img src={address} alt="" />
            <Marks marks={marks} />
          </div>
        )}
        {marks.length > 0 && <MarkLegend marks={marks} />}
      </dialog>
    </>
  );
}

/** A ring is where the answer is expected, a cross where it was given; a dashed box is expected, a solid one given. */
export function MarkLegend({ marks }: { marks: Mark[] }) {
  const has = (kind: Mark["kind"], shape: "point" | "box") => marks.some((mark) => mark.kind === kind && mark[shape]);
  const names = [
    has("expected", "point") && "ring: expected",
    has("given", "point") && "cross: given",
    has("expected", "box") && "dashed box: expected",
    has("given", "box") && "solid box: given",
  ].filter(Boolean);
  return <p class="mark-legend">{names.join(" · ")}</p>;
}

function Marks({ marks }: { marks: Mark[] }) {
  if (!marks.length) return null;
  return (
    <svg class="marks" role="group" aria-label="Marks on the picture">
      {marks.map((mark, index) => (
        <MarkShape mark={mark} key={index} />
      ))}
    </svg>
  );
}

function MarkShape({ mark }: { mark: Mark }) {
  const name = nameOf(mark);
  return (
    <g class={`mark ${mark.kind}`} role="img" aria-label={name}>
      <title>{name}</title>
      {mark.box && <BoxShape box={mark.box} />}
      {mark.point && <PointShape point={mark.point} kind={mark.kind} />}
    </g>
  );
}

function nameOf(mark: Mark): string {
  return `${mark.kind}${mark.label && `: ${printable(mark.label)}`}`;
}

function BoxShape({ box }: { box: [number, number, number, number] }) {
  const [left, top, right, bottom] = box.map(inside) as [number, number, number, number];
  const place = { x: percent(left), y: percent(top), width: percent(inside(right - left)), height: percent(inside(bottom - top)) };
  // The wide line below is a halo, so that a mark is visible on any picture.
  return (
    <>
      <rect class="halo" {...place} />
      <rect {...place} />
    </>
  );
}

function PointShape({ point, kind }: { point: [number, number]; kind: Mark["kind"] }) {
  const [x, y] = point.map(inside) as [number, number];
  const path = "M-8 -8L8 8M-8 8L8 -8";
  return (
    <svg x={percent(x)} y={percent(y)} overflow="visible">
      {kind === "expected" ? (
        <>
          <circle class="halo" r="11" />
          <circle r="11" />
        </>
      ) : (
        <>
          <path class="halo" d={path} />
          <path d={path} />
        </>
      )}
    </svg>
  );
}

const inside = (fraction: number) => Math.min(1, Math.max(0, fraction));
const percent = (fraction: number) => `${fraction * 100}%`;
