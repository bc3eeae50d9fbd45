"""``rlcore merge``. It also accepts the arguments of verl's merger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rlcore.console.terminal import overwrite, say
from rlcore.console.wording import counted
from rlcore.errors import NotInstalledError, UserError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from rlcore_merge.merging import Merged

_VERBS = ("merge", "test")


class MergeCommand(click.Command):
    """A command that accepts ``merge`` or ``test`` before verl's options, as verl's merger does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Drop the verb if the options are verl's."""
        if args and args[0] in _VERBS and any(arg.split("=")[0] in {"--backend", "--local_dir"} for arg in args):
            ctx.meta["verb"] = args[0]
            args = args[1:]
        return super().parse_args(ctx, args)


@click.command(
    cls=MergeCommand,
    short_help="Merge a checkpoint into one Hugging Face folder.",
    epilog="""\b
    Examples:
      rlcore merge runs/NAME --out merged
      rlcore merge checkpoints/global_step_100 --out merged --dtype bf16
      rlcore merge outputs/checkpoint-200 --base Qwen2.5-3B-Instruct --out merged
      rlcore merge checkpoints/global_step_100 --adapter --out adapter
      rlcore merge model.gguf --out model --dtype bf16
      rlcore merge merged --check REFERENCE
      rlcore merge merge --backend fsdp --local_dir DIR --target_dir merged""",
)
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option(
    "--out",
    "--target_dir",
    "out",
    type=click.Path(path_type=Path),
    help="Output folder. It must be empty or not exist, and is written completely or not at all.",
)
@click.option(
    "--dtype",
    type=click.Choice(["keep", "bf16", "fp16", "fp32"]),
    default="keep",
    show_default=True,
    help="Dtype of the floating-point weights.",
)
@click.option("--max-shard-size", default="5GB", show_default=True, help="Maximum size of one file.")
@click.option("--base", metavar="FOLDER", help="Base model of an adapter, or the folder with config and tokenizer.")
@click.option(
    "--check",
    "--test_hf_dir",
    "reference",
    metavar="REFERENCE",
    type=click.Path(path_type=Path),
    help="Compare with a checkpoint of any layout. The exit status is 1 if they differ.",
)
@click.option(
    "--tolerance",
    default=0.0,
    show_default=True,
    help="Largest difference that --check accepts. Different dtypes are compared in the narrower one.",
)
@click.option("--adapter", is_flag=True, help="Write the adapter instead of merging it.")
@click.option("--lora-alpha", type=float, help="Alpha of an adapter, if the checkpoint does not record it.")
@click.option("--allow-zero-delta", is_flag=True, help="Accept an adapter that changes nothing.")
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Number of threads. Default: the number of cores, at most 8."
)
@click.option(
    "--upload",
    "--hf_upload_path",
    "repository",
    metavar="REPO",
    help="Upload the result with a model card to the Hugging Face Hub.",
)
@click.option("--private", is_flag=True, help="Create the Hub repository as private.")
@click.option("--local_dir", type=click.Path(path_type=Path), help="Same as SOURCE (verl's name).")
@click.option("--backend", help="verl's option; only fsdp. The layout is detected without it.")
@click.option("--trust-remote-code", is_flag=True, hidden=True)
@click.option("--use_cpu_initialization", is_flag=True, hidden=True)
@click.option("--tie-word-embedding", is_flag=True, hidden=True)
@click.option("--is-value-model", is_flag=True, hidden=True)
@click.pass_context
def merge(
    ctx: click.Context,
    /,
    source: Path | None,
    out: Path | None,
    dtype: str,
    max_shard_size: str,
    base: str | None,
    reference: Path | None,
    tolerance: float,
    adapter: bool,
    lora_alpha: float | None,
    allow_zero_delta: bool,
    threads: int | None,
    repository: str | None,
    private: bool,
    local_dir: Path | None,
    backend: str | None,
    **without_effect: bool,
) -> int:
    """Merge a sharded or adapter checkpoint of any supported trainer into one Hugging Face folder."""
    source = _source(source, local_dir, backend, without_effect)
    if not tolerance >= 0:
        raise UserError("the tolerance must be a number of at least 0", found=f"{tolerance:g}", fix="--tolerance 1e-6")
    if reference is not None:
        from rlcore_merge.layouts import Layouts

        Layouts().find(reference.expanduser())  # raises before anything is written
    if out is None and reference is None:
        if ctx.meta.get("verb") != "merge":
            raise click.UsageError("pass --out FOLDER or --check REFERENCE")
        out = Path("tmp")  # verl's default
    if out is None and repository is not None:
        raise click.UsageError("--upload needs --out")
    if out is not None and repository is not None:
        _check_upload(repository, out)
    if out is not None:
        from rlcore_merge.merging import merge as run

        with _progress() as progress:
            merged = run(
                source,
                out,
                dtype=dtype,
                max_shard_size=max_shard_size,
                base=base,
                adapter=adapter,
                lora_alpha=lora_alpha,
                allow_zero_delta=allow_zero_delta,
                threads=threads,
                progress=progress,
            )
        for note in merged.notes:
            say(f"note: {note}", err=True)
        _print_summary(merged)
    status = 0 if reference is None else _check(out or source, reference, base, tolerance)
    if repository is not None and out is not None and status == 0:
        from rlcore_merge.layouts import Layouts
        from rlcore_merge.model_card import write_card

        write_card(out, Layouts().find(source)[0], repository)
        say(f"uploaded to {_upload(out, repository, private=private)}")
    return status


def _source(source: Path | None, local_dir: Path | None, backend: str | None, without_effect: dict[str, bool]) -> Path:
    if backend not in (None, "fsdp"):
        fix = "merge Megatron checkpoints with verl's own merger: python -m verl.model_merger"
        raise UserError("this backend is not supported", found=f"--backend {backend}", fix=fix)
    for option, given in without_effect.items():
        if given:
            why = "only the weights are read, no model is built"
            say(f"note: --{option.replace('_', '-')} has no effect: {why}", err=True)
    if source is not None and local_dir is not None:
        raise click.UsageError("pass the folder once: as SOURCE or as --local_dir")
    found = source or local_dir
    if found is None:
        raise click.UsageError("pass the checkpoint as SOURCE")
    return found


def _print_summary(merged: Merged) -> None:
    what = f"{counted(merged.tensors, 'tensor')}, {_size(merged.bytes)} in {merged.seconds:.1f} s ({merged.layout})"
    say(f"wrote {merged.folder}: {what}")


def _size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} bytes"


def _check(left: Path, right: Path, base: str | None, tolerance: float) -> int:
    from dataclasses import replace

    from rlcore_merge.comparison import ROUNDING, compare, lines, logits_difference
    from rlcore_merge.layouts import Layouts

    layouts = Layouts()
    comparison = compare(left, right, base=base, tolerance=tolerance, layouts=layouts)
    (mine, layout), (other, other_layout) = (layouts.find(folder.expanduser()) for folder in (left, right))
    kinds = {layout, other_layout}
    logits, note = None, "one of the checkpoints is neither a Hugging Face folder nor an adapter"
    if kinds <= {"huggingface", "peft"}:
        dtype = "float32" if comparison.rounded_to is None else comparison.rounded_to.torch_name
        given = None if base is None else Path(base).expanduser()
        logits, note = logits_difference(mine, other, dtype=dtype, base=given)
    if logits is not None and logits <= (max(tolerance, ROUNDING) if "peft" in kinds else tolerance):
        logits = 0.0
    comparison = replace(comparison, logits=logits, logits_note=note)
    say(*lines(comparison))
    return 0 if comparison.equal else 1


def _check_upload(repository: str, out: Path) -> None:
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
        message = "nothing can be uploaded, and nothing was merged"
        fix = f"run hf auth login, or merge without --upload and later run hf upload {repository} {out}"
        raise UserError(message, found=_first_line(error), where=repository, fix=fix) from None


def _upload(folder: Path, repository: str, *, private: bool) -> str:
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
        fix = f"the merged folder is complete; run hf upload {repository} {folder}"
        raise UserError("the upload failed", found=_first_line(error), where=repository, fix=fix) from None
    return str(answer)


def _api() -> HfApi:
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise NotInstalledError("--upload needs huggingface_hub", fix="pip install huggingface_hub") from None
    return HfApi()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A progress line on stderr; nothing is printed if stderr is not a terminal."""
    shown = -1

    def show(done: int, total: int) -> None:
        nonlocal shown
        percent = 100 * done // max(total, 1)
        if percent != shown:
            shown = percent
            overwrite(f"{percent:3d} % of {total / 1e9:.2f} GB")

    try:
        yield show if sys.stderr.isatty() else None
    finally:
        if shown >= 0:
            overwrite()
