"""Values and gradients of advantages, losses, KL and corrections in rlcore, TRL and verl on the same tensors."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))

import peers
import torch
from parity_lines import DIVERGENCES, LINES, NOT_FLOAT64, TOLERANCE
from parity_ours import GOLDEN, INPUTS, Difference, difference, golden_divergences, golden_outputs, versions
from safetensors.torch import load_file

VERSIONS = ("rlcore-trainer", "torch")


def count(*, smoke: bool = False) -> tuple[int, int, str]:
    """Run both peers, print the table, and count the lines with the expected difference."""
    inputs = load_file(INPUTS)
    golden_difference = golden_divergences()
    right = 0
    groups: dict[str, list[Difference]] = {}
    texts: dict[str, str] = {}
    for peer in peers.PEERS:
        golden = golden_outputs(peer)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if smoke and (missing := peers.missing(peer)):
                print(f"  {peer} skipped, its stored tensors are used: {missing}")
                folder = GOLDEN
            else:
                peers.run(peer, "parity_outputs.py", str(INPUTS), f"{folder}/{peer}.safetensors")
            outputs, words = load_file(folder / f"{peer}.safetensors"), versions(peer, folder)
        text = f"{peer} {words.pop(peer)} ({', '.join(f'{name} {version}' for name, version in words.items())})"
        stale = [name for name in outputs if name not in golden or not torch.equal(outputs[name], golden[name])]
        print(f"  {text}: {len(outputs) - len(stale)} of {len(outputs)} golden tensors are up to date")
        for line in LINES:
            if line.peer != peer:
                continue
            found = difference(line, inputs, outputs)
            if line.divergence:
                as_expected = abs(found.largest - golden_difference[line.name].largest) <= TOLERANCE
            else:
                as_expected = found.largest <= TOLERANCE
            right += as_expected
            if not as_expected:
                print(f"  NOT EQUAL {line.name}: {found}")
            groups.setdefault(line.group, []).append(found)
            texts[line.group] = text
    print(f"  {'function':<50} {'cases':>5}  {'value':>8}  {'gradient':>8}  reference")
    for group, found_in_group in groups.items():
        value = max(found.value for found in found_in_group)
        gradients = [found.gradient for found in found_in_group if found.gradient is not None]
        gradient = f"{max(gradients):.1e}" if gradients else "-"
        print(f"  {group:<50} {len(found_in_group):>5}  {value:>8.1e}  {gradient:>8}  {texts[group]}")
    for name, reason in NOT_FLOAT64.items():
        print(f"  {name}: {reason}")
    print("  intended differences, each with its option:")
    for name, reason in DIVERGENCES.items():
        print(f"    {name}: {reason}")
    return right, len(LINES), f"lines within {TOLERANCE:g}, or an intended difference of the recorded size"
