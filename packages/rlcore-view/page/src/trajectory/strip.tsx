// A column over the whole sequence. A click jumps to a token.
import { useEffect, useRef, useState } from "preact/hooks";
import { resolved, series } from "../colors";
import type { Scale } from "./columns";

const HEIGHT = 44;

interface StripProps {
  scale: Scale;
  trained: boolean[];
  onJump: (position: number) => void;
}

export function Strip({ scale, trained, onJump }: StripProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!canvas.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(canvas.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!canvas.current || !width) return;
    const draw = () => canvas.current && paint(canvas.current, width, scale, trained);
    draw();
    // The theme may change while the strip is shown.
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", draw);
    const chosen = new MutationObserver(draw);
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      theme.removeEventListener("change", draw);
      chosen.disconnect();
    };
  }, [width, scale, trained]);
  const jump = (event: MouseEvent & { currentTarget: HTMLCanvasElement }) => {
    const place = event.offsetX / event.currentTarget.clientWidth;
    onJump(Math.min(trained.length - 1, Math.max(0, Math.floor(place * trained.length))));
  };
  return (
    <canvas
      ref={canvas}
      class="strip"
      style={{ height: `${HEIGHT}px` }}
      role="img"
      aria-label={`${scale.title} over the sequence`}
      onClick={jump}
    />
  );
}

function paint(canvas: HTMLCanvasElement, width: number, scale: Scale, trained: boolean[]): void {
  const density = devicePixelRatio;
  canvas.width = width * density;
  canvas.height = HEIGHT * density;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(density, density);
  const background = resolved("var(--raised)");
  const [low, high] = [resolved(series(0)), resolved(series(1))];
  const size = trained.length;
  const bar = HEIGHT - 4;
  const y = (value: number) => {
    const share = (value - scale.low) / (scale.high - scale.low || 1);
    return 2 + bar * (1 - Math.min(1, Math.max(0, share)));
  };
  const zero = y(scale.centre ?? 0);
  for (let x = 0; x < width; x++) {
    const start = Math.floor((x / width) * size);
    const end = Math.max(start + 1, Math.floor(((x + 1) / width) * size));
    let [lowest, highest, written] = [Infinity, -Infinity, false];
    for (let position = start; position < end; position++) {
      written ||= trained[position] ?? false;
      const value = scale.values[position];
      if (value == null) continue;
      lowest = Math.min(lowest, value);
      highest = Math.max(highest, value);
    }
    if (written) fill(context, background, x, 0, HEIGHT);
    const centre = scale.centre ?? 0;
    if (highest > centre) fill(context, high, x, y(highest), zero);
    if (lowest < centre) fill(context, low, x, zero, y(lowest));
  }
}

function fill(context: CanvasRenderingContext2D, color: string, x: number, top: number, bottom: number): void {
  context.fillStyle = color;
  context.fillRect(x, top, 1, Math.max(1, bottom - top));
}
