"""What rlcore-trainer offers, through the same hooks as any plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlcore.hookspecs import hookimpl
from rlcore.specs import AlgorithmSpec, ModelBuilderSpec, StrategySpec, TrainerSpec

from rlcore_trainer.algorithms import ADVANTAGES, LOSSES

if TYPE_CHECKING:
    import pluggy


@hookimpl
def rlcore_addhooks(pluginmanager: pluggy.PluginManager) -> None:
    """Make the hooks of this package known."""
    from rlcore_trainer import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@hookimpl
def rlcore_trainers() -> Iterable[TrainerSpec]:
    """Reinforcement and imitation."""
    yield TrainerSpec(
        id="policy-gradient",
        target="rlcore_trainer.policy_gradient:PolicyGradientTrainer",
        config="rlcore_trainer.config:PolicyGradientConfig",
        summary="Rollouts, advantages, one or more updates, again.",
        check="rlcore_trainer.contradictions:check",
        quantizes=True,
        tables=(
            ("algorithm", "rlcore_trainer.algorithm_config:AlgorithmConfig"),
            ("warmup", "rlcore_trainer.config:WarmupConfig"),
            ("critic", "rlcore_trainer.config:CriticConfig"),
            ("lora", "rlcore_trainer.lora_config:LoraTable"),
        ),
    )
    yield TrainerSpec(
        id="sft",
        target="rlcore_trainer.supervised:SupervisedTrainer",
        config="rlcore_trainer.supervised_config:SupervisedConfig",
        summary="Imitates conversations; needs no environment.",
        needs_environment=False,
        check="rlcore_trainer.supervised_check:check",
        quantizes=True,
        tables=(("lora", "rlcore_trainer.lora_config:LoraTable"),),
    )


@hookimpl
def rlcore_algorithms() -> Iterable[AlgorithmSpec]:
    """Advantages and losses."""
    for id, name, reads, options, summary in ADVANTAGES:
        yield AlgorithmSpec(
            id=id,
            part="advantage",
            target=f"rlcore_trainer.advantages:{name}",
            reads=reads,
            options=options,
            summary=summary,
        )
    for id, name, reads, options, summary in LOSSES:
        yield AlgorithmSpec(
            id=id, part="loss", target=f"rlcore_trainer.losses:{name}", reads=reads, options=options, summary=summary
        )


@hookimpl
def rlcore_strategies() -> Iterable[StrategySpec]:
    """Ways to spread an update over devices."""
    yield StrategySpec(
        id="single",
        target="rlcore_trainer.strategies.single:SingleProcess",
        config="rlcore_trainer.config:SingleProcessConfig",
        summary="One process, one device.",
        check="rlcore_trainer.launch:check_device",
    )
    yield StrategySpec(
        id="ddp",
        target="rlcore_trainer.strategies.data_parallel:DataParallel",
        config="rlcore_trainer.config:DataParallelConfig",
        summary="Several processes, each with the whole model: strategy.processes=N, torchrun or accelerate launch.",
        launch="rlcore_trainer.launch:launch",
        check="rlcore_trainer.launch:check",
    )


@hookimpl
def rlcore_models() -> Iterable[ModelBuilderSpec]:
    """Models that are built on the spot."""
    yield ModelBuilderSpec(
        id="tiny-qwen2",
        target="rlcore_trainer.models.tiny_qwen2:build",
        config="rlcore_trainer.models.config:TinyQwen2Config",
        summary="About a million parameters of Qwen2's architecture and a tokenizer, from a seed.",
    )
