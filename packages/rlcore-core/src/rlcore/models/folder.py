"""Resolve ``model.path`` to a validated local Hugging Face folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.atomic_files import beside
from rlcore.errors import NotInstalledError, UserError
from rlcore.models.adapter import SETTINGS, base_name, check_base, is_adapter
from rlcore.models.agreement import check_agreement
from rlcore.models.config_file import CONFIG, check_config, read_config
from rlcore.models.contents import check_contents
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import asked, declared
from rlcore.runs.checkpoint_folder import MANIFEST, check_checkpoint, write_manifest
from rlcore.runs.directory import best_checkpoint, last_checkpoint, run_of

if TYPE_CHECKING:
    from rlcore.plugins.registry import Registry

BUILTIN = "builtin:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_DOWNLOADED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
HUB_TIMEOUT_S = 5.0
"""Time that a dry run waits for an answer of the hub."""
_TOKENIZER = "tokenizer.json"
_WEIGHTS = ("*.safetensors", "*.bin")


def local_folder(path: str, *, where: str | None = None) -> Path | None:
    """The folder of a local model, run directory or checkpoint; None for ``builtin:`` and hub ids.

    It may contain an adapter (see `rlcore.models.adapter`). A local base of the adapter is checked too.

    Raises:
        UserError: the folder does not exist, or files are missing.
    """
    if path.startswith(BUILTIN):
        return None
    folder = Path(path).expanduser()
    if not folder.exists():
        if _HUB_ID.fullmatch(path):
            return None
        fix = "give a Hugging Face folder, a run directory, a hub id (OWNER/NAME) or builtin:NAME"
        raise UserError(f"there is no model folder {path}", where=where, fix=fix)
    found = run_of(folder)
    if found is not None:
        folder = _model_of_run(*found)
    if is_adapter(folder):
        _check_adapter_folder(folder, where=where)
    else:
        check_model_folder(folder, where=where)
    return folder.resolve()


def _check_adapter_folder(folder: Path, *, where: str | None) -> None:
    base = local_base(folder)
    if base is not None:
        check_model_folder(base, where=where)
    check_contents(folder, where=where)
    if not (folder / "tokenizer.json").is_file():
        fix = f"copy tokenizer.json and tokenizer_config.json of {base or base_name(folder)} there"
        raise UserError(f"the adapter {folder} has no tokenizer.json", where=where, fix=fix)


def local_base(folder: Path) -> Path | None:
    """The verified folder of an adapter's base model; None when the base is a hub id.

    For a ``builtin:`` model, the base is in the run directory, even if the directory was moved.

    Raises:
        UserError: the base does not exist, or is a different model.
    """
    named = base_name(folder)
    places = [Path(named).expanduser()] if named else []
    if len(folder.resolve().parents) > 2:
        run = folder.resolve().parents[2]
        places += [run / "model"] if (run / "config.toml").is_file() else []
    for place in places:
        if (place / "config.json").is_file():
            check_base(folder, place)
            return place
    if named and _HUB_ID.fullmatch(named):
        return None
    raise UserError(
        "cannot find the base model of the adapter",
        found=f"no model at {named!r}" if named else "the adapter does not name its base",
        where=str(folder),
        fix=f"restore the base, set base_model_name_or_path in {folder / SETTINGS} to its folder or hub id, or merge: "
        f"rlcore merge {folder} --base FOLDER --out FOLDER",
    )


def base_of(folder: Path) -> Path:
    """Like `local_base`, but downloads a base on the hub, or takes it from the local cache.

    Raises:
        UserError: the base does not exist, cannot be downloaded, or is a different model.
    """
    base = local_base(folder)
    if base is None:
        base = download(base_name(folder) or "", where=str(folder / SETTINGS))
        check_base(folder, base)
    return base


def _model_of_run(run: Path, checkpoint: Path | None) -> Path:
    checkpoint = checkpoint or best_checkpoint(run) or last_checkpoint(run)
    if checkpoint is None:
        raise no_checkpoint(run)
    return checkpoint / "model"


def check_checksums(folder: Path) -> None:
    """Compare the model folder of a checkpoint with the checksums of the checkpoint, if it has them.

    Raises:
        UserError: a file is missing or damaged.
    """
    found = run_of(folder)
    if found is not None and found[1] is not None and (found[1] / MANIFEST).is_file():
        check_checkpoint(found[1], within="model/", command="use")


def no_checkpoint(run: Path) -> UserError:
    """The error for a run without a checkpoint. Its initial model is untrained, so it is not used instead."""
    initial = run / "model"  # of a builtin model
    return UserError(
        "the run has no checkpoint yet",
        found="checkpoints/ is empty: the run ended or was stopped before the first checkpoint",
        where=str(run),
        fix=f"continue it: rlcore run --resume {run}"
        + (f"; its initial model is {initial}" if initial.is_dir() else ""),
    )


def check_model_folder(folder: Path, *, where: str | None = None) -> None:
    """Raise `UserError` when a Hugging Face folder lacks its configuration, tokenizer or weights, or has wrong sizes.

    A folder of a control policy needs no tokenizer: see `is_control_folder`.
    Also when it needs code of its own, or refers to files outside of it; see `rlcore.models.contents`. Also when its
    files do not belong together; see `rlcore.models.agreement`.
    """
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UserError(f"{folder} is not a model folder", found=found, where=where, fix="give the folder of the model")
    missing = [name for name in (CONFIG, _TOKENIZER) if not (folder / name).is_file()]
    if missing == [_TOKENIZER] and is_control_folder(folder):
        missing = []
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        missing.append("weights (*.safetensors)")
    if missing:
        here = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        fix = "add the missing files"
        if _TOKENIZER in missing:
            fix = "save the model's tokenizer there: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)"
        raise UserError(
            f"the model folder {folder} has no {' and no '.join(missing)}", found=here, where=where, fix=fix
        )
    check_contents(folder, where=where)
    check_config(folder)
    check_agreement(folder)


def is_control_folder(folder: Path) -> bool:
    """Whether a folder is that of a control policy: rlcore saves its ``spaces``, and LeRobot a ``type`` of its own.

    Raises:
        UserError: its configuration is damaged.
    """
    if not (folder / CONFIG).is_file():
        return False
    config = read_config(folder)
    return "spaces" in config or ("type" in config and "model_type" not in config)


def download(path: str, *, where: str | None = None) -> Path:
    """The folder of a hub id, downloaded or from the local cache."""
    hub = _hub(path, where)
    try:
        folder = Path(hub.snapshot_download(path, allow_patterns=_DOWNLOADED))
    except Exception as error:  # network boundary: the advice is the same for all failures
        raise _not_downloaded(path, error, where) from None
    check_model_folder(folder, where=where)
    return folder


def cached(path: str, *, where: str | None = None) -> Path | None:
    """The folder of a hub id in the local cache; None if it has to be downloaded.

    Raises:
        UserError: the hub answers that there is no such model, or that it cannot be read.
    """
    try:
        hub = _hub(path, where)
    except NotInstalledError:
        return None
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(hub.snapshot_download(path, allow_patterns=_DOWNLOADED, local_files_only=True))
        check_model_folder(folder, where=where)
        return folder
    except Exception:  # nothing or not everything is there
        pass
    try:
        hub.model_info(path, timeout=HUB_TIMEOUT_S)
    except RepositoryNotFoundError as error:  # also of one that needs a login
        raise _not_downloaded(path, error, where) from None
    except Exception:  # no network
        return None
    return None


def _hub(path: str, where: str | None) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        fix = f"{pip_line(['rlcore-trainer'])}   (which installs huggingface_hub), or give a local folder"
        raise NotInstalledError(f"downloading the hub id {path} needs huggingface_hub", where=where, fix=fix) from None
    return huggingface_hub


def _not_downloaded(path: str, error: Exception, where: str | None) -> UserError:
    return UserError(
        f"cannot download the model {path} from the hub",
        found=(str(error).splitlines() or [type(error).__name__])[0],
        where=where,
        fix="check the id and the network, or give a local folder: model=FOLDER",
    )


def build(
    registry: Registry,
    id: str,
    folder: Path,
    texts: Iterable[str],
    seed: int,
    config: Any,
    *,
    environment: Callable[[], Any] | None = None,
    sampler: Any = None,
) -> Path:
    """Build a ``builtin:`` model atomically in ``folder``, unless the folder exists.

    A builder that declares the keyword ``environment`` receives a function that creates an environment of the run, from
    which it reads sizes; None without an environment. The keyword ``sampler`` receives the sampler's options.
    """
    if not folder.exists():
        builder = registry.load("model", id)
        keywords = declared(builder, environment=environment, sampler=sampler)
        temporary = beside(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            asked(registry.named("model", id), builder, temporary, texts, seed, config, **keywords)
            check_model_folder(temporary)
            write_manifest(temporary)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    check_model_folder(folder)
    return folder
