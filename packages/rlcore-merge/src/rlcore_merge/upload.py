"""Sends a written folder to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from rlcore.errors import NotInstalledError, UserError


def upload(folder: Path, repository: str, *, private: bool) -> str:
    """Create the repository where it is missing, upload the folder, and return its address.

    Raises:
        NotInstalledError: huggingface_hub is missing.
        UserError: the hub refused.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise NotInstalledError("--upload needs huggingface_hub", mend="pip install huggingface_hub") from None
    api = HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        answer = api.upload_folder(repo_id=repository, folder_path=folder)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise UserError(
            "the upload failed",
            found=str(error).splitlines()[0] if str(error) else type(error).__name__,
            where=repository,
            mend=f"the merged folder is whole: hf upload {repository} {folder}",
        ) from None
    return str(answer)
