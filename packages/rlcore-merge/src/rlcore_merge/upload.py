"""Upload a merged folder to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.errors import NotInstalledError, UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def check(repository: str, out: Path) -> None:
    """Check the repository name and the login before the merge starts.

    Raises:
        NotInstalledError: huggingface_hub is missing.
        UserError: the repository name is invalid, the token is missing or invalid, or the Hub is unreachable.
    """
    api = _api()
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(repository)
        api.whoami()
    except Exception as error:  # the boundary to the network: every failure needs the same advice
        raise UserError(
            "nothing can be uploaded, and nothing was merged",
            found=_first_line(error),
            where=repository,
            fix=f"run hf auth login, or merge without --upload and later run hf upload {repository} {out}",
        ) from None


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Create the repository if it does not exist, upload the folder, and return its URL.

    Raises:
        NotInstalledError: huggingface_hub is missing.
        UserError: the Hub rejected the upload or is unreachable.
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
            fix=f"the merged folder is complete; run hf upload {repository} {folder}",
        ) from None
    return str(answer)


def _api() -> HfApi:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise NotInstalledError("--upload needs huggingface_hub", fix="pip install huggingface_hub") from None
    return HfApi()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
