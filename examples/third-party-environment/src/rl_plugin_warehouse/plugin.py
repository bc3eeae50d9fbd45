"""The objects that this distribution registers with rlcore: only names and import paths."""

from rlcore import DatasetSpec, EnvironmentSpec, RewardSpec, ToolSpec

HERE = "rl_plugin_warehouse"

rlcore_specs = [
    EnvironmentSpec(
        id="warehouse",
        target=f"{HERE}.environment:Warehouse",
        config=f"{HERE}.environment:WarehouseConfig",
        summary="Questions about articles, answered with a lookup tool.",
    ),
    ToolSpec(id="look-up", target=f"{HERE}.environment:look_up", summary="Look up an article in the list."),
    RewardSpec(
        id="warehouse-answer", target=f"{HERE}.environment:right_answer", summary="1 if the number matches the list."
    ),
    DatasetSpec(id="warehouse", target=f"{HERE}.questions:Questions", summary="Generated questions."),
]
