"""The objects that this distribution registers with rlcore: only names and import paths."""

from rlcore import DatasetSpec, EnvironmentSpec, RewardSpec, ToolSpec, hookimpl

HERE = "rl_plugin_warehouse"


@hookimpl
def rlcore_environments():
    """The environment of the clerk."""
    yield EnvironmentSpec(
        id="warehouse",
        target=f"{HERE}.environment:Warehouse",
        config=f"{HERE}.environment:WarehouseConfig",
        summary="Questions about articles, answered with a lookup tool.",
    )


@hookimpl
def rlcore_tools():
    """The lookup tool."""
    yield ToolSpec(id="look-up", target=f"{HERE}.environment:look_up", summary="Look up an article in the list.")


@hookimpl
def rlcore_rewards():
    """Whether the answer is correct."""
    yield RewardSpec(
        id="warehouse-answer", target=f"{HERE}.environment:right_answer", summary="1 if the number matches the list."
    )


@hookimpl
def rlcore_datasets():
    """The questions."""
    yield DatasetSpec(id="warehouse", target=f"{HERE}.questions:Questions", summary="Generated questions.")
