import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { diverging, sequential, SERIES, series } from "../src/colors";

type Rgb = [number, number, number];
const THEMES = ["light", "dark"] as const;
const STYLE = readFileSync("src/style.css", "utf-8");

/** The variables of a theme. */
function colors(theme: (typeof THEMES)[number]): Map<string, Rgb> {
  const pairs = STYLE.matchAll(/(--[\w-]+): light-dark\((#\w{6}), (#\w{6})\)/g);
  return new Map([...pairs].map(([, name, light, dark]) => [name!, parsed((theme === "light" ? light : dark)!)]));
}

function parsed(color: string): Rgb {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255) as Rgb;
}

/** A colour of the scales on a background. */
function mixed(color: string, theme: Map<string, Rgb>, background: Rgb): Rgb {
  const [, name, percent] = /var\((.+?)\) (\d+)%/.exec(color)!;
  return theme.get(name!)!.map((part, at) => background[at]! + (part - background[at]!) * (Number(percent) / 100)) as Rgb;
}

const linear = (rgb: Rgb) => rgb.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)) as Rgb;
const times = (rows: Rgb[], [x, y, z]: Rgb) => rows.map(([a, b, c]) => a * x + b * y + c * z) as Rgb;

/** As WCAG defines it. */
function contrast(one: Rgb, other: Rgb): number {
  const [high, low] = [one, other]
    .map((rgb) => times([[0.2126, 0.7152, 0.0722]], linear(rgb))[0])
    .sort((left, right) => right! - left!);
  return (high! + 0.05) / (low! + 0.05);
}

/** Linear colours as seen without the cones for green, and without those for red (Machado, Oliveira and Fernandes). */
const SEEN: Record<string, Rgb[]> = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
};

/** Distance in OKLab. */
function distance(one: Rgb, other: Rgb, eyes: Rgb[]): number {
  const [left, right] = [one, other].map((rgb) => lab(times(eyes, linear(rgb)))) as [Rgb, Rgb];
  return Math.hypot(...left.map((part, at) => part - right[at]!));
}

function lab(rgb: Rgb): Rgb {
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    rgb,
  ).map(Math.cbrt) as Rgb;
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    cones,
  );
}

const TEXTS = ["text", "muted", "accent", "good", "bad", "warn"].map((name) => `--${name}`);
const BACKGROUNDS = ["background", "surface", "raised"].map((name) => `--${name}`);
const SATURATED = [diverging(-1, 1), diverging(1, 1), sequential(1, 0, 1)];

for (const theme of THEMES) {
  const known = colors(theme);
  const surface = known.get("--surface")!;

  test(`text of the ${theme} theme has a contrast of 4.5`, () => {
    for (const text of TEXTS) {
      for (const background of BACKGROUNDS) {
        const found = contrast(known.get(text)!, known.get(background)!);
        assert.ok(found >= 4.5, `${text} on ${background}: ${found.toFixed(2)}`);
      }
    }
    assert.ok(contrast(known.get("--on-accent")!, known.get("--accent")!) >= 4.5);
  });

  test(`names of runs in the colours of their lines are readable in the ${theme} theme`, () => {
    for (let index = 0; index < SERIES; index++) {
      const name = /--[\w-]+/.exec(series(index))![0];
      for (const background of BACKGROUNDS) {
        const found = contrast(known.get(name)!, known.get(background)!);
        assert.ok(found >= 4.5, `${name} on ${background}: ${found.toFixed(2)}`);
      }
    }
  });

  test(`text on coloured tokens of the ${theme} theme has a contrast of 4.5`, () => {
    for (const color of SATURATED) {
      const found = contrast(known.get("--text")!, mixed(color, known, surface));
      assert.ok(found >= 4.5, `${color}: ${found.toFixed(2)}`);
    }
  });

  test(`colours of tokens of the ${theme} theme differ for all eyes`, () => {
    const [low, high] = [diverging(-1, 1), diverging(1, 1)].map((color) => mixed(color, known, surface)) as [Rgb, Rgb];
    for (const [eyes, matrix] of Object.entries(SEEN)) {
      assert.ok(distance(low, high, matrix) >= 0.12, `${eyes}: ends differ by ${distance(low, high, matrix)}`);
      for (const color of SATURATED) {
        const found = distance(mixed(color, known, surface), surface, matrix);
        assert.ok(found >= 0.12, `${eyes}: ${color} differs from the surface by ${found}`);
      }
    }
  });

  test(`each step of a scale of the ${theme} theme is stronger than the one before`, () => {
    for (const color of [(value: number) => diverging(-value, 1), (value: number) => diverging(value, 1)]) {
      const steps = [0.25, 0.5, 0.75, 1].map((value) => mixed(color(value), known, surface));
      const distances = steps.map((step) => distance(step, surface, SEEN["all"]!));
      assert.deepEqual(distances, [...distances].sort((left, right) => left - right));
    }
  });

  test(`lines of the ${theme} theme differ`, () => {
    const lines = Array.from({ length: SERIES }, (_, index) => known.get(`--series-${index}`)!);
    lines.forEach((one, at) => {
      for (const other of lines.slice(at + 1)) {
        assert.ok(distance(one, other, SEEN["all"]!) >= 0.05, `${at}: ${distance(one, other, SEEN["all"]!)}`);
      }
    });
  });
}
