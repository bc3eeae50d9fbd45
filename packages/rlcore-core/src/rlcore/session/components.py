"""The components of a plan, each imported and created on first use."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlcore.abilities import NamedModelConfig
from rlcore.config.schema import LARGEST
from rlcore.contracts import ChatFormat, Dataset, Environment, Sandbox
from rlcore.episodes.rewards import SelectedReward, select_rewards
from rlcore.errors import UserError
from rlcore.images import ImageProcessor
from rlcore.models.config_file import context_tokens
from rlcore.models.folder import BUILTIN, build, cached, check_checksums, download, local_folder
from rlcore.models.tokenizer_texts import texts_of
from rlcore.plugins.registry import Registry, asked, declared, make, make_component
from rlcore.session.datasets import MixedDataset, Part, UsableTasks, checked_dataset, usable_tasks
from rlcore.session.model_inputs import (
    TEMPLATE,
    chat_arguments,
    check_image_input,
    check_tools_of_environments,
    detected_chat_format,
    has_image_environment,
)
from rlcore.session.sandboxes import SandboxChoice, choose_sandbox, importable, runs_code
from rlcore.specs import EngineSpec, EnvironmentSpec, SamplerSpec, TrainerSpec
from rlcore.transport.hosting import HostedEnvironments, interpreters
from rlcore.transport.served import Servers
from rlcore.types import Task, derive_seed

if TYPE_CHECKING:
    from rlcore.config.resolved import Resolved, ResolvedEnvironment
    from rlcore.config.schema import RunConfig
    from rlcore.session.plan import RunPlan


class RunComponents:
    """The components selected by a plan: dataset, environments, rewards, model folder, chat format.

    Attributes:
        plan: the `RunPlan`
        registry: the `Registry` (ids to specs to objects)
        home: folder in which a ``builtin:`` model is built; None builds it in a temporary one
        trial: whether components are created only to check that they can be, as in a dry run: nothing is started
            outside of this process
    """

    def __init__(
        self,
        plan: RunPlan,
        registry: Registry | None = None,
        *,
        home: Path | None = None,
        dataset: Dataset | None = None,
        trial: bool = False,
    ) -> None:
        self.plan, self.registry, self.home, self.trial = plan, registry or Registry(), home, trial
        self._dataset = dataset
        self._environments: dict[str, Any] = {}
        self._hosted: dict[str, HostedEnvironments] = {}
        self._rewards: dict[str, tuple[SelectedReward, ...]] = {}
        self._usable: dict[str, UsableTasks] = {}
        self._model_folder: Path | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def resolved(self) -> Resolved:
        """The plan's configuration with origins."""
        return self.plan.resolved

    @property
    def config(self) -> RunConfig:
        """The tables that rlcore itself reads."""
        return self.plan.config

    @property
    def recipe(self) -> str:
        """Id or file of the recipe; empty without a recipe."""
        return self.plan.recipe

    @property
    def resume_from(self) -> Path | None:
        """Folder of the checkpoint to continue from."""
        return self.plan.resume_from

    @property
    def trains(self) -> bool:
        """Whether it is a run, and no evaluation."""
        return self.plan.purpose == "run"

    @property
    def samples(self) -> bool:
        """Whether it needs an environment; some trainers do not."""
        return not self.trains or self.trainer_spec.needs_environment

    @property
    def engine_spec(self) -> EngineSpec:
        """The spec of the engine."""
        return cast(EngineSpec, self.registry.spec("engine", self.config.rollout.engine))

    @property
    def sampler_spec(self) -> SamplerSpec:
        """The spec of the sampler."""
        return cast(SamplerSpec, self.registry.spec("sampler", self.config.sampler.id))

    @property
    def shares_sampler(self) -> bool:
        """Whether a run with several processes samples for all of them in its main process."""
        return self.sampler_spec.shared or self.engine_spec.shared

    @property
    def trainer_spec(self) -> TrainerSpec:
        """The spec of the trainer."""
        return cast(TrainerSpec, self.registry.spec("trainer", self.config.trainer.id))

    def options(self, table: str) -> Any:
        """The validated options of a component; see `RunPlan.options`."""
        return self.plan.options(table)

    def load(self, kind: str, id: str) -> Any:
        """The imported target of a registered component: ``run.load("advantage", "grpo")``."""
        return self.registry.load(kind, id)

    @property
    def dataset(self) -> Dataset:
        """The `Dataset`, created once."""
        if self._dataset is None:
            parts = [
                Part(
                    name=one.name,
                    weight=one.table.weight_at(0),
                    dataset=self._made_dataset(one.data_id, one.data, one.name),
                )
                for one in self.environments
                if one.table is not None
            ]
            if parts:
                self._dataset = MixedDataset(parts)
            else:
                id = self.environments[0].data_id if self.environments else self.config.data["id"]
                name = self.environments[0].name if self.environments else None
                self._dataset = self._made_dataset(id, self.options("data"), name)
        return self._dataset

    def _made_dataset(self, id: str, options: Any, environment: str | None) -> Dataset:
        """A dataset, with those keywords of `rlcore.specs.DatasetSpec` that it declares."""
        target, what = self.load("dataset", id), self.registry.named("dataset", id)
        create = None if environment is None else partial(self.environment, environment)
        if keywords := declared(target, environment=create, importable=partial(importable, self)):
            target = partial(target, **keywords)
        return checked_dataset(make_component(what, target, options), what)

    def usable_tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split whose prompts the model can see, read once. The others are reported.

        Raises:
            UserError: no task can be used, or tasks or environments have images and the model cannot see them.
        """
        if split not in self._usable:
            tasks = self.dataset.tasks(split)
            limit = asked = self.config.rollout.max_prompt_tokens
            tokens = self.engine_spec.speaks == "tokens"
            pictured = tokens and any(message.images for task in tasks for message in task.messages)
            if pictured or has_image_environment(self):
                self.check_image_input()
            if pictured:
                limit = min(limit or LARGEST, self._context_tokens() - 1)
            counting = tokens and limit is not None
            chat_format = self.chat_format(self.model_folder()) if counting else None
            found = usable_tasks(tasks, chat_format, limit if counting else None)
            if tasks and not found.tasks:
                reasons = "; ".join(f"{count} x {reason}" for reason, count in found.skipped.items())
                raise UserError(
                    f"no task of data.{split} can be used",
                    found=reasons,
                    where=self.resolved.origin(("rollout", "max_prompt_tokens")) if asked else None,
                    fix="change the data"
                    + (", set a lower model.images.max_pixels" if pictured else "")
                    + (", or set a higher rollout.max_prompt_tokens" if asked else ""),
                )
            self._usable[split] = found
            self._tell_skipped(found.lines(split))
        return self._usable[split].tasks

    def _tell_skipped(self, lines: Sequence[str]) -> None:
        """Report tasks that cannot be used."""

    def _context_tokens(self) -> int:
        """The maximum length of a conversation."""
        own = context_tokens(self.model_folder()) or LARGEST
        return min(own, self.config.rollout.max_context_tokens or LARGEST)

    def check_image_input(self) -> None:
        """Check that the model sees images, before its weights are loaded. With messages, the server's model sees them.

        Raises:
            UserError: it sees none, or a part is missing or belongs to another model.
        """
        if self.engine_spec.speaks == "tokens":
            folder = self.model_folder()
            named = self.registry.named("chat_format", self.chat_format_id(folder))
            where = self.resolved.origin(("model", "path"))
            check_image_input(folder, self.chat_format(folder), named=named, where=where)

    @property
    def environments(self) -> tuple[ResolvedEnvironment, ...]:
        """The environments of the run; the only one has an empty name."""
        return self.resolved.environments

    def environment(self, name: str = "") -> Environment:
        """A new `Environment` for one trajectory; ``name`` selects one of several."""
        chosen = self._named(name)
        if chosen.is_hosted:
            return cast(Environment, self.hosted(name).make())
        if name not in self._environments:
            self._environments[name] = self.load("environment", chosen.id)
        return cast(Environment, make(self._environments[name], chosen.options))

    def environment_maker(self, name: str = "") -> Callable[[], Any]:
        """A function that creates environments as `environment`, for a process that it is pickled for."""
        chosen = self._named(name)
        if chosen.is_hosted:
            return self.hosted(name).control_maker()
        return partial(make, self.load("environment", chosen.id), chosen.options)

    def hosted(self, name: str = "") -> HostedEnvironments:
        """Creates the environments of a table that names another interpreter, or servers; one object for all."""
        chosen = self._named(name)
        if name not in self._hosted:
            spec = self.registry.spec("environment", chosen.id)
            assert isinstance(spec, EnvironmentSpec)
            self._hosted[name] = HostedEnvironments(
                Servers(chosen.servers, spec.id)
                if chosen.servers
                else interpreters(spec, chosen.python, chosen.variables),
                spec=spec,
                options=chosen.options,
                timeout_s=self.config.rollout.environment_timeout_s,
            )
        return self._hosted[name]

    @property
    def runs_code(self) -> bool:
        """Whether the run declares that it runs code of the model, or names a sandbox."""
        return runs_code(self)

    @cached_property
    def sandbox_choice(self) -> SandboxChoice:
        """The sandbox of the run with what it guarantees on this machine; chosen once.

        Raises:
            UserError: the sandbox that the run names cannot be used, or ``auto`` finds none.
        """
        return choose_sandbox(self)

    def sandbox(self) -> Sandbox:
        """A new `Sandbox`, of which a process needs one. It is started by its first session. Raises as above."""
        spec = self.sandbox_choice.spec
        target, what = self.load("sandbox", spec.id), f"the creation of {self.registry.named('sandbox', spec.id)}"
        options = self.resolved.options.get("sandbox")
        return cast(Sandbox, asked(what, target, options, self.config.sandbox.limits))

    def rewards(self, name: str = "") -> tuple[SelectedReward, ...]:
        """The rewards of an environment, or of a run without one, created once."""
        if name not in self._rewards:
            if name or self.environments:
                chosen = self._named(name)
                tables, options = chosen.rewards, chosen.reward_options
            else:
                tables, options = tuple(self.config.reward), self.resolved.reward_options
            timeout_s = self.config.rollout.reward_timeout_s
            self._rewards[name] = select_rewards(self.registry, tables, options, timeout_s=timeout_s)
        return self._rewards[name]

    def _named(self, name: str) -> ResolvedEnvironment:
        return next(one for one in self.environments if one.name == name)

    @property
    def own_model(self) -> str | None:
        """The engine's name for the model that it provides; None when the model is ``model.path``."""
        if self.engine_spec.speaks == "tokens":
            return None
        options = self.options("engine")
        return options.model if isinstance(options, NamedModelConfig) else self.engine_spec.id

    @property
    def model_name(self) -> str:
        """The model as it was given, or its name if the engine provides it."""
        return self.own_model or self.config.model.path

    def model_folder(self) -> Path:
        """The policy's Hugging Face folder: the local one, or ``builtin:`` built into `home`.

        Raises:
            UserError: it cannot be used, or it is of a checkpoint and damaged.
        """
        if self._model_folder is None:
            path = self.config.model.path
            where = self.resolved.origin(("model", "path"))
            if path.startswith(BUILTIN):
                self._model_folder = self._build(path.removeprefix(BUILTIN))
            else:
                here = local_folder(path, where=where)
                self._model_folder = here or download(path, where=where)
                check_checksums(self._model_folder)
                if here is None:  # of a local folder, the run checked it at its start
                    check_tools_of_environments(self, self._model_folder)
        return self._model_folder

    def model_here(self) -> Path | None:
        """Like `model_folder`, but without a download: None for a hub id that is not in the local cache.

        Raises:
            UserError: as `model_folder`; also if the hub has no such model.
        """
        path = self.config.model.path
        where = self.resolved.origin(("model", "path"))
        if self._model_folder is None and not path.startswith(BUILTIN) and local_folder(path, where=where) is None:
            self._model_folder = cached(path, where=where)
            return self._model_folder
        return self.model_folder()

    def _build(self, id: str) -> Path:
        parent = self.home
        if parent is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="rlcore-model-")
            parent = Path(self._temporary.name)
        seed = derive_seed(self.config.seed, "model")
        environment = partial(self.environment, self.environments[0].name) if self.environments else None
        return build(
            self.registry,
            id,
            parent / "model",
            texts_of(self.dataset),
            seed,
            self.options("builder"),
            environment=environment,
            sampler=self.resolved.options.get("sampler"),
        )

    def chat_format_id(self, folder: Path) -> str:
        """The id of the configured chat format, or of the one detected from the tokenizer's folder.

        Raises:
            PluginError: no format supports the folder.
        """
        model = self.config.model
        if model.chat_format != "auto":
            return model.chat_format
        if model.chat_template is not None:
            return TEMPLATE
        return detected_chat_format(self.registry, folder)

    def chat_format(self, folder: Path) -> ChatFormat:
        """The configured chat format, or the one detected from the tokenizer's folder, with the run's parser.

        Raises:
            PluginError: no format supports the folder.
            UserError: the format does not support the folder, or an argument of ``[model]``.
        """
        id = self.chat_format_id(folder)
        factory = self.load("chat_format", id)
        given = chat_arguments(self, id, factory)
        if declared(factory, images=None):
            given["images"] = self._seen_images(folder)
        return cast(ChatFormat, factory(folder, **given))

    def _seen_images(self, folder: Path) -> ImageProcessor | None:
        """The image processor; None for one that is not supported in a run whose environments have no images."""
        try:
            return self.image_processor(folder)
        except UserError:
            if self.environments and not has_image_environment(self):
                return None
            raise

    def image_processor(self, folder: Path) -> ImageProcessor | None:
        """The image processor of a model folder with the limits of ``[model.images]``; None for a text model.

        Raises:
            UserError: it is damaged or of an unsupported type.
        """
        images = self.config.model.images
        return ImageProcessor.of_folder(folder, min_pixels=images.min_pixels, max_pixels=images.max_pixels)

    def discard(self) -> None:
        """Remove the model that was built in a temporary folder, and end the interpreters of environments."""
        for hosted in self._hosted.values():
            hosted.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
            self._model_folder = None
