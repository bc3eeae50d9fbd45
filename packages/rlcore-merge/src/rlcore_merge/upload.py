"""Sends a written folder to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import NotInstalledError, UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def check(repository: str, out: Path) -> None:
    """Ask the hub who we are, before the work whose result it is to take.

    Raises:
        NotInstalledError: huggingface_hub is missing.
        UserError: the repository cannot have this name, the token is missing or not valid, or the hub is out of reach.
    """
    api = _api()
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(repository)
        api.whoami()
    except Exception as error:  # the boundary to the network: whatever failed there, the person needs the same advice
        raise UserError(
            "nothing can be uploaded, and nothing was merged",
            found=_first_line(error),
            where=repository,
            mend=f"hf auth login; or merge without --upload, and later: hf upload {repository} {out}",
        ) from None


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Create the repository where it is missing, upload the folder, and return its address.

    Raises:
        NotInstalledError: huggingface_hub is missing.
        UserError: the hub refused, or is out of reach.
    """
    api = _api()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        answer = api.upload_folder(repo_id=repository, folder_path=folder)
    except Exception as error:  # as above
        raise UserError(
            "the upload failed",
            found=_first_line(error),
            where=repository,
            mend=f"the merged folder is whole: hf upload {repository} {folder}",
        ) from None
    return str(answer)


def _api() -> HfApi:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise NotInstalledError("--upload needs huggingface_hub", mend="pip install huggingface_hub") from None
    return HfApi()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
