"""Published step times of other systems, and the settings of the simulator that stand for them; see docs/scale.md.

verl: its document about fully asynchronous training; a step's ``gen`` and ``update_actor`` on shared cards calibrate
the asynchronous rows of the same size. NeMo-RL 0.6: its performance summary and recipes; the synchronous rows
calibrate, and for Qwen3-30B-A3B the one-off row as well. AReaL 0.3: its release notes; nothing is calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlcore_trainer.planning.cluster import CARDS, EfficiencyTable
from rlcore_trainer.planning.costs import Decoding, Learning, Model, transfer_s
from rlcore_trainer.planning.simulation import Setting, simulate
from rlcore_trainer.planning.trajectories import Distribution, Trajectories

QWEN_1B = Model(parameters=1.54e9, active=1.54e9, layers=28, width=1536, key_width=256)
QWEN_7B = Model(parameters=7.6e9, active=7.6e9, layers=28, width=3584, key_width=512)
QWEN_30B = Model(parameters=30.5e9, active=3.3e9, layers=48, width=2048, key_width=512)
QWEN_235B = Model(parameters=235e9, active=22e9, layers=94, width=4096, key_width=512)
DEEPSEEK = Model(parameters=671e9, active=37e9, layers=61, width=7168, key_width=288)
NETWORK_GB_S, NODE = 400, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a table trains, on which cards, and what is assumed or fitted."""

    model: Model
    card: str
    groups: int
    group_size: int
    tokens: tuple[float, float, float]
    """Mean, spread and limit."""
    engine: int = 1
    replica: int = 1
    turns: int = 1
    tool_s: float = 0.0
    moves_weights: bool = True
    """Whether synchronous steps send weights over the network."""

    def step_s(self, samplers: int, learners: int, *, fitted: dict[str, float], **schedule: Any) -> float:
        """The simulated time of a step; equal numbers of cards with ``ahead=None`` share them."""
        shared = schedule.get("ahead") is None
        engine = schedule.pop("engine", self.engine)
        efficiency = EfficiencyTable(update_s=0).model_copy(update=fitted)
        card, mean = CARDS[self.card], self.tokens[0] + 150
        caches = (0.85 * card.memory_gb * 1e9 * engine - self.model.bytes) / self.model.cache_bytes / mean
        trajectories = Trajectories(
            tokens=Distribution.log_normal(*self.tokens),
            prompt=150,
            turns=self.turns,
            observation=100,
            tool_s=Distribution.log_normal(self.tool_s, 1.0),
        )
        sent_s = transfer_s(self.model, efficiency, NETWORK_GB_S, samplers // NODE, share=min(1, NODE / engine))
        setting = Setting(
            trajectories=trajectories,
            decoding=Decoding(
                model=self.model, card=card, efficiency=efficiency, cards=engine, slots=max(1, min(256, int(caches)))
            ),
            engines=samplers // engine,
            learning=Learning(
                model=self.model,
                card=card,
                efficiency=efficiency,
                cards=learners,
                passes=3,
                replica=self.replica,
                shares_cards=shared,
            ),
            transfer_s=0 if shared and not self.moves_weights else sent_s,
            groups=self.groups,
            group_size=self.group_size,
            ahead=schedule.pop("ahead", None) or 0,
            **schedule,
        )
        return simulate(setting, steps=10, most_turns=2048).step_s


VERL_7B = Workload(model=QWEN_7B, card="H20", groups=512, group_size=16, tokens=(1000, 1.3, 28672))
VERL_30B = Workload(model=QWEN_30B, card="H20", groups=512, group_size=16, tokens=(1500, 1.2, 8192), engine=2)
VERL_TOOLS = Workload(model=QWEN_7B, card="H20", groups=64, group_size=16, tokens=(4000, 1.0, 16384), turns=4, tool_s=1)
NEMO: dict[str, Any] = {"group_size": 32, "card": "H100", "moves_weights": False}
NEMO_30B = Workload(model=QWEN_30B, groups=64, tokens=(3050, 1.0, 3946), engine=2, **NEMO)
NEMO_235B = Workload(model=QWEN_235B, groups=16, tokens=(5550, 1.0, 8042), engine=16, replica=32, **NEMO)
NEMO_V3 = Workload(
    model=DEEPSEEK, groups=32, tokens=(550, 1.0, 1386), engine=32, replica=16, **{**NEMO, "group_size": 16}
)
AREAL: dict[str, Any] = {"card": "H800", "groups": 512, "group_size": 16, "tokens": (8000, 0.8, 27648)}
