"""From ``model.path`` to a checked Hugging Face folder on this machine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.adapter_folder import SETTINGS, base_name, check_base, is_adapter
from rlcore.errors import NotInstalledError, UserError
from rlcore.run_directory import best_checkpoint, last_checkpoint, run_of
from rlcore.whole_files import beside

if TYPE_CHECKING:
    from rlcore.registry import Registry

BUILTIN = "builtin:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_NEEDED = ("config.json", "tokenizer.json")
_WEIGHTS = ("*.safetensors", "*.bin")


def local_folder(path: str, *, where: str | None = None) -> Path | None:
    """The folder of a local model, run directory or checkpoint; None for ``builtin:`` and hub ids.

    It may hold an adapter, see `rlcore.adapter_folder`, whose base has then been found, or is of the hub.

    Raises:
        UserError: the folder is not there, or lacks what a model needs.
    """
    if path.startswith(BUILTIN):
        return None
    folder = Path(path).expanduser()
    if not folder.exists():
        if _HUB_ID.fullmatch(path):
            return None
        mend = "give a Hugging Face folder, a run directory, a hub id (OWNER/NAME) or builtin:NAME"
        raise UserError(f"there is no model folder {path}", where=where, mend=mend)
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
    if not (folder / "tokenizer.json").is_file():
        mend = f"copy tokenizer.json and tokenizer_config.json of {base or base_name(folder)} there"
        raise UserError(f"the adapter {folder} has no tokenizer.json", where=where, mend=mend)


def local_base(folder: Path) -> Path | None:
    """The folder of the base that an adapter names, found to be the right one; None where it names a hub id.

    The base of a ``builtin:`` model is found in its run's directory, wherever that has been moved.

    Raises:
        UserError: it is not there, or another one.
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
        "the base of the adapter is not where it was",
        found=f"it names {named!r}, where there is no model" if named else "it names none",
        where=str(folder),
        mend=f"put the base back, write its folder or hub id into {folder / SETTINGS} as base_model_name_or_path, or "
        f"merge: rlcore merge {folder} --base FOLDER --out FOLDER",
    )


def base_of(folder: Path) -> Path:
    """As `local_base`; a base of the hub is downloaded or from the local cache.

    Raises:
        UserError: it is not there, cannot be had, or is another one.
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


def no_checkpoint(run: Path) -> UserError:
    """That a run holds no model: what it began with is untrained, and never what a person means by the run."""
    begun = run / "model"  # of a builtin model
    return UserError(
        "the run has no checkpoint yet",
        found="nothing in checkpoints/: it ended, or was stopped, before the first one",
        where=str(run),
        mend=f"go on with it: rlcore run --resume {run}"
        + (f"; what it started from is {begun}" if begun.is_dir() else ""),
    )


def check_model_folder(folder: Path, *, where: str | None = None) -> None:
    """Raise `UserError` naming what a Hugging Face folder lacks: configuration, tokenizer or weights."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UserError(
            f"{folder} is not a model folder", found=found, where=where, mend="name the folder of the model"
        )
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
        missing.append("weights (*.safetensors)")
    if missing:
        here = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        mend = "complete the folder"
        if "tokenizer.json" in missing:
            mend = "save the model's tokenizer there: AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)"
        raise UserError(
            f"the model folder {folder} has no {' and no '.join(missing)}", found=here, where=where, mend=mend
        )


def download(path: str, *, where: str | None = None) -> Path:
    """The folder of a hub id, downloaded or from the local cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        mend = "pip install rlcore-trainer   (it brings huggingface_hub), or give a local folder"
        raise NotInstalledError(
            f"{path} is a hub id, and nothing here can download it", where=where, mend=mend
        ) from None
    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        folder = Path(snapshot_download(path, allow_patterns=patterns))
    except Exception as error:  # the boundary to the network: whatever failed there, the person needs the same advice
        raise UserError(
            f"cannot get the model {path} from the hub",
            found=(str(error).splitlines() or [type(error).__name__])[0],
            where=where,
            mend="check the id and the network, or give a local folder: model=FOLDER",
        ) from None
    check_model_folder(folder, where=where)
    return folder


def build(registry: Registry, id: str, folder: Path, texts: Iterable[str], seed: int, config: Any) -> Path:
    """A ``builtin:`` model, built beside and then renamed to ``folder``; one that stands there already is kept."""
    if not folder.exists():
        builder = registry.load("model", id)
        temporary = beside(folder)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            builder(temporary, texts, seed, config)
            check_model_folder(temporary)
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    check_model_folder(folder)
    return folder
