"""What this distribution offers to rlcore: names and import paths, nothing else."""

from rlcore import DatasetSpec, EnvironmentSpec, RecipeSpec, RewardSpec, ToolSpec, hookimpl

HERE = "rl_plugin_warehouse"


@hookimpl
def rlcore_environments():
    """The clerk's desk."""
    yield EnvironmentSpec(
        id="warehouse",
        target=f"{HERE}.environment:Warehouse",
        config=f"{HERE}.environment:WarehouseConfig",
        summary="Questions about articles, answered with a look-up.",
    )


@hookimpl
def rlcore_tools():
    """The list."""
    yield ToolSpec(id="look-up", target=f"{HERE}.environment:look_up", summary="What the list says about an article.")


@hookimpl
def rlcore_rewards():
    """Whether the answer is right."""
    yield RewardSpec(
        id="warehouse-answer", target=f"{HERE}.environment:right_answer", summary="1 when the number is the list's."
    )


@hookimpl
def rlcore_datasets():
    """The questions."""
    yield DatasetSpec(id="warehouse", target=f"{HERE}.questions:Questions", summary="Made on the spot.")


@hookimpl
def rlcore_recipes():
    """What ``rlcore run --plugin warehouse`` does."""
    yield RecipeSpec(
        id="warehouse/default",
        target=f"{HERE}:recipes/default.toml",
        summary="A tiny model learns what to look up: a minute or two on a laptop.",
    )
