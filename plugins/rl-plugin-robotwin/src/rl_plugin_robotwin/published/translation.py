"""The options and the file ``rl_config.yaml`` of the published program, in the keys of rlcore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.config.layers import file_layer
from rlcore.errors import ConfigError, did_you_mean
from rlcore.runs.directory import last_checkpoint

from rl_plugin_robotwin.published.keys import DEFAULTS, OPTIONS, RULES, SPECIAL, WEIGHTS

ALIASES = {
    "teacher": "teacher",
    "phase1": "teacher",
    "wm": "teacher",
    "student": "student",
    "phase2": "student",
    "explorer": "student",
    "adversarial": "adversarial",
    "phase3": "adversarial",
    "adv": "adversarial",
}
IDS = ("environment", "environment.id")
"""Overrides that choose the environment."""
DEFAULT = "default"
"""Where values come from that nobody gave."""


@dataclass(slots=True)
class Translated:
    """What the published settings become."""

    recipe: str
    output_dir: str
    values: dict[str, Any] = field(default_factory=dict)
    """Values by rlcore's keys."""
    lines: list[str] = field(default_factory=list)
    """A line for each setting: which key it became, or what decides instead."""
    resume: str | None = None
    """The run to resume; None for a new one."""


def translated(phase: str, options: Mapping[str, Any], overrides: Sequence[str] = ()) -> Translated:
    """Translate the options of the launcher, and the file of ``--rl_config``, which they override.

    Args:
        phase: teacher, student or adversarial
        options: the given options by name
        overrides: rlcore's own overrides, which decide which environment is used

    Raises:
        ConfigError: keys are unknown or their values are not supported; all of them are named.
    """
    work = _Translation(phase, options, overrides)
    work.run()
    if work.problems:
        raise ConfigError("settings of the published program are not supported", found="\n".join(work.problems))
    return work.found


class _Translation:
    def __init__(self, phase: str, options: Mapping[str, Any], overrides: Sequence[str]) -> None:
        self.phase, self.options = phase, options
        chosen = [text.partition("=")[2].strip().strip("\"'") for text in overrides if _key(text) in IDS]
        self.toy = chosen[-1:] == ["flat-arm"]
        self.other = bool(chosen) and chosen[-1] not in ("robotwin", "flat-arm")
        self.found = Translated(f"toy-{phase}" if self.toy else phase, f"./outputs/{phase}_rl")
        self.problems: list[str] = []
        self.keys = dict[str, tuple[Any, str]]()
        """Values of the published keys, and where they come from."""

    def run(self) -> None:
        """Fill `found` and `problems`."""
        if "rl_config" in self.options:
            name = str(self.options["rl_config"])
            tree = file_layer(Path(name).expanduser(), name=name).tree
            self.keys = {key: (value, name) for key, value in _leaves(tree)}
        for name, key in OPTIONS.items():
            if name in self.options:
                self.keys[key] = (self.options[name], f"--{name}")
        self._folder()
        if self.found.resume is None:
            self.keys = {key: (value, DEFAULT) for key, value in DEFAULTS.items()} | self.keys
        for key, (value, origin) in self.keys.items():
            if key not in SPECIAL:
                self._translate(key, value, origin)
        self._training()
        self._logging()
        self._rewards()
        self._paths()
        self._processes()
        self._refused()

    def _set(self, given: str, ours: str, value: Any, origin: str = "") -> None:
        self.found.values[ours] = value
        self._tell(f"{given}: {ours}={value}" + (f" ({DEFAULT})" if origin == DEFAULT else ""), origin)

    def _tell(self, text: str, origin: str = "") -> None:
        """Add a line, except about a default that has no effect."""
        if origin != DEFAULT or text.endswith(f"({DEFAULT})"):
            self.found.lines.append(text)

    def _number(self, key: str, *, whole: bool = False) -> float | None:
        """Return the number of a key; None if it is not given or no number, which is then a problem."""
        value, origin = self.keys.get(key, (None, ""))
        if value is None:
            return None
        try:  # YAML reads 1e-4 as text
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
            if whole and number != int(number):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            self.problems.append(f"{key}={value} ({origin}): {'a whole' if whole else 'a'} number is needed")
            return None
        return int(number) if whole else number

    def _switch(self, key: str) -> bool | None:
        """Return true or false; None if the key is not given or has another value, which is then a problem."""
        value, origin = self.keys.get(key, (None, ""))
        if value is not None and not isinstance(value, bool):
            self.problems.append(f"{key}={value} ({origin}): true or false is needed")
            return None
        return value

    def _translate(self, key: str, value: Any, origin: str) -> None:
        rule, phase = RULES.get(key), self.phase
        if rule is None:
            known = [*RULES, *SPECIAL]
            table = any(one.startswith(f"{key}.") for one in known)
            near = "it is a table of keys" if table else did_you_mean(key, known)
            self.problems.append(f"{key} ({origin}): unknown key" + (f"; {near}" if near else ""))
            return
        section = key.split(".")[0]
        if phase not in rule.phases or (section in ALIASES and section != phase):
            self._tell(f"{key}: not used in the phase {phase}", origin)
        elif rule.only and value not in rule.only:
            wanted = ", ".join(str(one) for one in rule.only)
            self.problems.append(f"{key}={value} ({origin}): only {wanted}; {rule.why}")
        elif not rule.key or (self.toy and not rule.toy):
            self._tell(f"{key}: {rule.why or 'not used by the toy environment'}", origin)
        else:
            made = rule.values[rule.only.index(value)] if rule.values else value
            if key == "student.ppo.clip_epsilon":
                made = {"id": "clip", "clip_low": value, "clip_high": value}
            self._set(key, rule.key, made, origin)

    def _folder(self) -> None:
        """Find the output directory, and whether a run in it is resumed."""
        found, options = self.found, self.options
        for other in ("teacher", "student", "adversarial"):
            key = f"{other}.output_dir"
            value, origin = self.keys.get(key, ("", ""))
            if not isinstance(value, str):
                self.problems.append(f"{key}={value} ({origin}): the name of a folder is needed")
            elif key in self.keys and other == self.phase:
                found.output_dir = value
                self._tell(f"{key}: runs and name, of {found.output_dir}")
            elif key in self.keys:
                self._tell(f"{key}: not used in the phase {self.phase}")
        if "output_dir" in options:
            found.output_dir = str(options["output_dir"])
        folder = Path(found.output_dir)
        if "resume" in options:
            found.resume = str(options["resume"])
        elif "auto_resume" in options and folder.is_dir() and last_checkpoint(folder) is not None:
            found.resume = str(folder)

    def _training(self) -> None:
        phase, key = self.phase, "training.learning_rate"
        rate, origin = self._number(key), self.keys.get(key, (None, ""))[1]
        if rate is not None and phase == "adversarial":
            self._tell(f"{key}: not used; adversarial.wm_lr and explorer_lr decide", origin)
        elif rate is not None:
            ours = "trainer.explorer_learning_rate" if phase == "student" else "trainer.learning_rate"
            self._set(key, ours, rate, origin)
        steps = self._number("training.steps_per_episode", whole=True)
        if steps is not None:
            self._set("training.steps_per_episode", "trainer.steps_per_episode", steps)
            if not self.other:
                self._set("training.steps_per_episode", "environment.max_steps", steps)
        batch = self._number("training.batch_size", whole=True)
        parts = self._number("training.gradient_accumulation_steps", whole=True)
        if batch is not None or parts is not None:
            text = "training.batch_size × gradient_accumulation_steps"
            self._set(text, "trainer.batch_size", (8 if batch is None else batch) * (1 if parts is None else parts))
        rounds = self._number("adversarial.total_iterations", whole=True)
        if rounds is not None and phase == "adversarial":
            slots = int(self.options.get("num_gpus", 1)) * int(self.options.get("num_envs", 1))
            self._set("adversarial.total_iterations", "trainer.episodes", rounds * slots)

    def _logging(self) -> None:
        writes, debug = self._switch("logging.enable_file_logging"), self._switch("debug")
        if writes is False:
            self._set("logging.enable_file_logging", "trainer.file_level", "CRITICAL")
        elif writes:
            self._tell("logging.enable_file_logging: logging.file_level decides")
        if debug:
            self._set("debug", "trainer.console_level", "DEBUG")
        elif debug is False:
            self._tell("debug: logging.console_level decides")

    def _rewards(self) -> None:
        given = {name: f"student.rewards.{name}_weight" for name in WEIGHTS}
        given = {name: key for name, key in given.items() if key in self.keys}
        if self.phase != "student":
            self.found.lines += [f"{key}: not used in the phase {self.phase}" for key in given.values()]
        elif given:
            weights = dict(WEIGHTS)
            for name, key in given.items():
                weights[name] = self._number(key) or 0.0
                self._tell(f"{key}: trainer.terms, {name}={weights[name]}")
            self.found.values["trainer.terms"] = [{"id": name, "weight": weight} for name, weight in weights.items()]
        if "adversarial.adversarial_weight" in self.keys:
            why = "the reward is scaled to unit deviation, so its weight has no effect; trainer.terms has the weights"
            self._tell(f"adversarial.adversarial_weight: {why}")

    def _paths(self) -> None:
        options, phase, refuse = self.options, self.phase, self.problems.append
        paths = {options[name] for name in ("teacher_path", "teacher_checkpoint") if name in options}
        if len(paths) > 1:
            refuse("--teacher_path and --teacher_checkpoint name different folders: give one of them")
        elif paths and phase == "teacher":
            refuse("--teacher_path: phase 1 makes the teacher; it is for the phases 2 and 3")
        elif paths:
            self._set("--teacher_path", "trainer.teacher", paths.pop())
        elif phase == "student" and self.found.resume is None:
            refuse("--teacher_path is needed in phase 2: …/checkpoint-N of phase 1")
        if "student_checkpoint" in options and phase == "adversarial":
            self._set("--student_checkpoint", "trainer.student", options["student_checkpoint"])
        elif "student_checkpoint" in options:
            refuse("--student_checkpoint is for phase 3")

    def _processes(self) -> None:
        options = self.options
        if "num_envs" in options:
            self._set("num_envs", "trainer.num_envs", int(options["num_envs"]))
        processes = int(options.get("num_gpus", 1))
        # A resumed run has a number of processes already, which a given one replaces.
        if processes > 1 or "use_ddp" in options or ("num_gpus" in options and self.found.resume is not None):
            self._set("num_gpus", "strategy.id", "ddp")
            self._set("num_gpus", "strategy.processes", processes)

    def _refused(self) -> None:
        """Note the options that have no counterpart."""
        options, refuse = self.options, self.problems.append
        if options.get("mixed_precision", "no") != "no":
            refuse(f"--mixed_precision {options['mixed_precision']}: only no; the networks are small")
        if "model_config" in options:
            refuse("--model_config: the networks are those of [model.builder], such as model.builder.memory=256")
        if "no_sequential_training" in options:
            refuse("--no_sequential_training: the memory needs the order of the steps")
        if "sequential_training" in options:
            self._tell("--sequential_training: episodes are always trained in order")
        if "total_iterations" in options and self.phase != "adversarial":
            refuse("--total_iterations is for phase 3; --num_episodes is the length of this phase")


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return dotted keys and values. A table that a rule names as a whole is one value."""
    leaves: list[tuple[str, Any]] = []
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in RULES:
            leaves += _leaves(value, f"{key}.")
        else:
            leaves.append((key, value))
    return leaves
