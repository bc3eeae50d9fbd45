"""Names of the weights of flow policies in files.

Files of different libraries have different names for the same weights. A file keeps its names when it is saved again.
The names by which a network has its weights are called canonical.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from rl_plugin_lerobot.features import is_statistic


class Names:
    """The names of a file, and its weights that are not computed with.

    Args:
        weights: the weights of the file
        canonical: returns the canonical name of a weight
        unused: the canonical name of a weight that is not computed with. It is kept in files, and is not trained
    """

    def __init__(self, weights: Mapping[str, Tensor], canonical: Callable[[str], str], unused: str) -> None:
        computed = [name for name in weights if canonical(name) != unused and not is_statistic(name)]
        self._canonical = canonical
        self._own = {name: canonical(name) for name in computed}
        self._kept = {name: one for name, one in weights.items() if name not in self._own}

    def __deepcopy__(self, memo: Any) -> Names:
        return self  # it does not change, and may be large

    def own(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights of a file by their canonical names, in float32."""
        # The output layer of the language model is a copy of its embeddings, and LeRobot's file may have both.
        order = sorted(self._own, key=lambda name: "lm_head" not in name)
        return {self._own[name]: weights[name].float() for name in order}

    def save(self, weights: Mapping[str, Tensor], path: Path) -> None:
        """Write the weights of a network with the names of the file that was read."""
        state = {self._canonical(name): one for name, one in weights.items()}
        stored: dict[str, Tensor] = {}
        written: set[str] = set()
        for name, own in self._own.items():
            weight = state[own].detach().cpu().contiguous()
            stored[name] = weight.clone() if own in written else weight
            written.add(own)
        save_file(stored | self._kept, path, metadata={"format": "pt"})
