"""The picture sheet of an evaluation: one HTML file with pictures, questions, answers and verdicts."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

from rl_plugin_visual_cot.samples import Sample

MOST = 200
"""Number of samples on a sheet: first the wrong ones, as they teach more."""
STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; background: #fafafa; color: #222 }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(20em, 1fr)); gap: 1em }
article { background: white; border: 1px solid #ddd; border-top: 4px solid #b33; border-radius: 4px; padding: 1em }
article.right { border-top-color: #2a7 }
img { display: block; max-width: 100%; max-height: 16em; min-width: 8em; image-rendering: auto; margin: 0 auto .6em }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f3f3f3; padding: .5em; margin: .4em 0;
      max-height: 14em; overflow: auto; font-size: 12px }
.verdict { font-weight: 600 }
"""


def sheet(title: str, samples: Sequence[Sample], lines: Sequence[str]) -> str:
    """Return the sheet as HTML without scripts or external files. All texts are escaped."""
    chosen = sorted(samples, key=lambda sample: sample.verdict.correct)[:MOST]
    note = f"<p>{len(chosen)} of {len(samples)} samples, wrong answers first</p>"
    numbers = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    cards = "\n".join(_card(sample) for sample in chosen)
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    body = f"<h1>{html.escape(title)}</h1><ul>{numbers}</ul>{note}<main>\n{cards}\n</main>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _card(sample: Sample) -> str:
    verdict = sample.verdict
    words = ["correct" if verdict.correct else "wrong"]
    if sample.failed:
        words = ["failed"]
    elif verdict.parsed.answer:
        words.append("consistent" if verdict.consistent else "not consistent")
    else:
        words.append("no answer")
    words += ["truncated"] * sample.truncated + ["other format"] * (not verdict.parsed.well_formed)
    answer = html.escape(verdict.parsed.answer or "–")
    think = html.escape(verdict.parsed.think or sample.text or "–")
    return (
        f'<article class="{"right" if verdict.correct else "wrong"}">{_image(sample.image)}'
        f"<p>{html.escape(sample.question)}</p><pre>{think}</pre>"
        f"<p>Answer: <b>{answer}</b>, expected: <b>{html.escape(sample.expected)}</b></p>"
        f'<p class="verdict">{", ".join(words)}</p></article>'
    )


def _image(data: bytes | None) -> str:
    if data is None:
        return ""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f'<img src="data:image/{kind};base64,{base64.b64encode(data).decode()}" alt="the picture">'
