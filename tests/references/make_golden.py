"""Write the golden tensors: ``uv run python tests/references/make_golden.py`` (installs the peers on first use).

They change with the lines and cases of the table and with the versions of the peers. The test that reads them reports
which ones are wrong. ``tests/benchmarks/run.py parity`` runs the peers and reports outdated golden tensors.
"""

from __future__ import annotations

import json

import peers
from parity_cases import all_inputs
from parity_lines import LINES
from parity_ours import DIVERGENCES, GOLDEN, INPUTS, difference, golden_outputs
from safetensors.torch import save_file


def main() -> None:
    """Write inputs, outputs of each peer, and the sizes of the intended differences."""
    inputs = all_inputs()
    GOLDEN.mkdir(exist_ok=True)
    save_file(inputs, INPUTS)
    for peer in peers.PEERS:
        peers.run(peer, "parity_outputs.py", str(INPUTS), str(GOLDEN / f"{peer}.safetensors"))
    peers.run("trl", "distillation_outputs.py", str(GOLDEN / "distillation.safetensors"))
    peers.run("trl", "preference_outputs.py", str(GOLDEN / "preferences.safetensors"))
    outputs = {peer: golden_outputs(peer) for peer in peers.PEERS}
    divergences = {
        line.name: difference(line, inputs, outputs[line.peer])._asdict() for line in LINES if line.divergence
    }
    DIVERGENCES.write_text(json.dumps(divergences, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
