"""Make the Gymnasium environment that a task describes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcore.errors import UserError
from rlcore.plugin_calls import error_text
from rlcore.types import Task

from rl_plugin_gymnasium.spaces import Actions, check_observation_space, observation_text

if TYPE_CHECKING:
    from gymnasium import Env

HIGHLIGHT = re.compile(r"\x1b\[[0-9;]*m(.*?)\x1b\[0m", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A Gymnasium environment, its actions, and how it is shown."""

    env: Env[Any, Any]
    actions: Actions
    ansi: bool
    instructions: str

    @classmethod
    def of(cls, task: Task) -> World:
        """The environment of a task.

        Raises:
            UserError: it cannot be made, or not be used with text.
        """
        made = task.fields
        return cls.make(made["make"], made["arguments"], made["show"], made["actions"], made["instructions"])

    @classmethod
    def make(
        cls, id: str, arguments: Mapping[str, Any], show: str, actions: Sequence[str], instructions: str | None
    ) -> World:
        """The environment of these keys of ``[data]``."""
        import gymnasium

        ansi = show == "ansi"
        render: dict[str, Any] = {"render_mode": "ansi"} if ansi else {}
        try:
            env = gymnasium.make(id, disable_env_checker=True, **render, **arguments)
        except Exception as error:  # an environment may raise anything
            raise UserError(
                f"gymnasium.make({id!r}) failed",
                found=error_text(error),
                fix=fix_of(error, "data.make", "data.arguments", id),
            ) from error
        try:
            if ansi and env.render_mode != "ansi":
                raise UserError(f"the environment {id!r} has no render mode 'ansi'", fix="data.show=observation")
            if not ansi:
                check_observation_space(env.observation_space)
            words = Actions(env.action_space, actions)
        except BaseException:
            env.close()
            raise
        told = f"You control {id}. Answer with {words.valid}." if instructions is None else instructions
        return cls(env=env, actions=words, ansi=ansi, instructions=told)

    def opening(self, observation: Any) -> str:
        """The instructions and the first observation."""
        return "\n".join(filter(None, (self.instructions, self.shown(observation))))

    def shown(self, observation: Any) -> str:
        """What the model sees. In ``ansi``, what is highlighted is in brackets."""
        if not self.ansi:
            return observation_text(self.env.observation_space, observation)
        text = self.env.render()
        return HIGHLIGHT.sub(r"[\1]", text if isinstance(text, str) else str(text)).strip("\n")


def fix_of(error: Exception, key: str, arguments: str, id: str) -> str:
    """What to do about an error of ``gymnasium.make``.

    Args:
        error: that it raised
        key: the configuration key of the id
        arguments: the key of its arguments
        id: that was made
    """
    import gymnasium

    if isinstance(error, (gymnasium.error.DependencyNotInstalled, ImportError)):
        return "install what it needs"
    if isinstance(error, (gymnasium.error.NameNotFound, gymnasium.error.NamespaceNotFound)) and ":" not in id:
        return (
            f"correct {key}; python -m gymnasium lists the ids of Gymnasium. The id of another package needs the "
            f"module that registers it, which is imported first: {key}=MODULE:{id}, as in "
            f"{key}=mani_skill.envs:PickCube-v1"
        )
    return f"change {key} or {arguments}; python -m gymnasium lists the ids"


__all__ = ["World", "fix_of"]
