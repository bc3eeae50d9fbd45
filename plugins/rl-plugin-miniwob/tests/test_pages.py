"""Episodes on real pages in a real browser."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from rl_plugin_miniwob.chromium import find_chromium
from rl_plugin_miniwob.config import DataConfig, EnvironmentConfig
from rl_plugin_miniwob.dataset import Pages
from rl_plugin_miniwob.environment import Elements
from rl_plugin_miniwob.oracles import ORACLES
from rl_plugin_miniwob.pool import POOL
from rlcore.errors import EnvironmentFailure
from rlcore.testing import check_environment, check_plugin
from rlcore.types import Message, Step, Task
from rlcore_gui.actions import Action

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_chromium() is None, reason="Chromium is not installed"),
]


def task(page: str, seed: int = 0) -> Task:
    return Task(id=f"{page}:{seed}", messages=(), fields={"page": page, "seed": seed})


def started(page: str, seed: int = 0, **options: object) -> Elements:
    environment = Elements(EnvironmentConfig.model_validate({"instructions": False, **options}))
    environment.reset(task(page, seed), seed=0)
    return environment


def acted(environment: Elements, text: str) -> Step:
    return environment.step(Message(role="assistant", content=text))


def shown(step: Step) -> str:
    return step.observation.messages[0].text


def test_plugin_conforms() -> None:
    check_plugin("miniwob")


def test_screenshots_conform() -> None:
    tasks = Pages(DataConfig(pages=["click-test-2"])).tasks("train")[:1]
    check_environment("miniwob-screens", tasks=tasks, rewards=["miniwob"])


@pytest.mark.parametrize("page", ORACLES)
def test_page_is_solved_by_the_actions_of_its_oracle(page: str) -> None:
    for seed in range(3):
        environment = started(page, seed)
        *_, last = [environment.step(message) for message in environment.oracle(task(page, seed))]
        environment.close()
        assert (last.terminated, last.reward) == (True, 1.0), (page, seed)


def test_wrong_click_and_silence_and_giving_up() -> None:
    """Both buttons of the page are known from the elements."""
    environment = Elements(EnvironmentConfig(instructions=False, max_turns=2))
    text = environment.reset(task("click-test-2"), seed=0).messages[0].text
    (two,) = [line for line in text.splitlines() if "TWO" in line]
    step = acted(environment, '{"action": "CLICK", "position": ' + two[two.index("[") :] + "}")
    assert (step.reward, step.terminated) == (-1.0, True)
    environment = started("click-test-2", max_turns=2)
    first, last = acted(environment, ""), acted(environment, "")
    assert (first.terminated, last.truncated, last.reward) == (False, True, 0.0)
    assert first.info["unreadable/no_action"] == 1
    assert acted(started("click-test-2"), '{"action": "STATUS TASK COMPLETE"}').terminated


def test_answer_of_a_policy_for_phones_types_into_the_selected_field() -> None:
    environment = started("enter-text")
    acted(environment, '{"action": "CLICK", "value": null, "position": [0.412, 0.302]}')
    typed = acted(environment, '{"action": "TYPE", "value": "one", "position": null}')
    assert 'text "one" selected' in shown(typed)
    replaced = acted(environment, '{"action": "TYPE", "value": "two", "position": [0.412, 0.302]}')
    assert '"two"' in shown(replaced)
    environment.close()


def test_typed_text_runs_no_code_and_loads_nothing() -> None:
    """The page writes a text as HTML, as a careless page would."""
    with POOL.page() as page:
        page.open("enter-text", 0)
        page._evaluate("""document.querySelector('#area').innerHTML +=
            '<img src=x onerror="core.endEpisode(1)"><iframe src="file:///etc/passwd"></iframe>'""")
        page._evaluate("new Promise((resolve) => setTimeout(resolve, 300))")
        assert not page.state().done
        with pytest.raises(EnvironmentFailure, match="Failed to fetch"):
            page._evaluate("fetch('http://127.0.0.1:80/')")


def test_time_of_the_model_does_not_end_or_reduce_an_episode() -> None:
    with POOL.page() as page:
        page.open("click-test", 0)
        page._evaluate("Date.prototype.getTime = () => 1e15")
        (button,) = page.elements()
        page.act(Action(name="CLICK", position=button.position))
        assert page.state().reward == 1


def test_ended_browser_fails_its_episodes_and_is_replaced() -> None:
    POOL.close()
    first = started("click-test")
    others = [started("click-test") for _ in range(8)]
    browser = first._page.browser
    assert others[-1]._page.browser is not browser, "a browser has eight windows"
    os.killpg(browser._process.pid, signal.SIGKILL)
    with pytest.raises(EnvironmentFailure):
        acted(first, "")
    first.close()
    assert not acted(others[-1], "").terminated
    assert not acted(started("click-test"), "").terminated
    for environment in others:
        environment.close()


def test_crashed_page_fails_only_its_episode() -> None:
    crashed, other = started("click-test"), started("click-test")
    page = crashed._page
    page.browser.send("Page.crash", page._session)
    with pytest.raises(EnvironmentFailure, match="crashed"):
        acted(crashed, "")
    assert not acted(other, "").terminated
    crashed.close()
    other.close()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    POOL.close()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = started("click-test")
    group = environment._page.browser._process.pid
    assert list(tmp_path.iterdir())
    environment.close()
    POOL.close()
    assert not list(tmp_path.iterdir())
    deadline = time.monotonic() + 10
    while running(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(group)


def running(group: int) -> bool:
    """Whether a process group exists. Processes that init has not reaped yet count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
