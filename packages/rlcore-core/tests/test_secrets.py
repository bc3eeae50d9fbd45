"""Secrets of a configuration: never in a file of the run nor in the output, and asked for by name on resume."""

from __future__ import annotations

import gzip
import json
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlcore.cli.retries import TOLD as TOLD_FILE
from rlcore.config.layers import values_layer
from rlcore.config.messages import ProblemsError
from rlcore.config.resolve import resolve
from rlcore.config.write import toml_value
from rlcore.plugins.registry import Registry
from rlcore.redaction import MASK, forget, is_secret, mask_arguments, redact, redacted, remember

Call = Callable[..., Any]

SECRET_KEYS = (
    *("password", "passwd", "secret", "secret_key", "access_key", "api_key", "token", "refresh_token"),
    *("authorization", "Authorization", "credentials", "judge.api_key", "hf_token", "--api-key", "client_secret"),
    *("aws_secret_access_key", "X-Api-Key", "apiKey", "AWS_SESSION_TOKEN", "hub_token", "private_key"),
    *("credentials.user", "judge.headers.Authorization", "reward.0.password"),
)
ORDINARY_KEYS = (
    *("max_new_tokens", "max_tokens", "eos_token", "pad_token", "token_ids", "tokens", "key", "stop_token_ids"),
    *("api_key_env", "secretary", "tokenizer", "image_token", "password_field", "authorization_url", "keys"),
)
JUDGE = """
from typing import Any
from pydantic import BaseModel, SecretStr
class Judge:
    class Config(BaseModel):
        pin: SecretStr | None = None
        count: int = 1
        endpoint: str = ""
        password: str = ""
        token: str = "a-default-token"
        options: dict[str, Any] = {}
        fail: bool = False
    def __init__(self, config):
        self.config = config
        if config.fail:
            raise ValueError(f"cannot log in with {config!r}, {config.pin and config.pin.get_secret_value()}, "
                             f"{config.password}\\n{config.options} {config.endpoint}")
    def __call__(self, trajectory, task): return 1.0
"""
TOLD = """
import toy_rl, logging
from rlcore.types import Boundary, Failure, Group
class Sampler(toy_rl.Sampler):
    def collect(self, request):
        config = self.run.resolved.reward_options[0]
        pin = config.pin and config.pin.get_secret_value()
        text = f"refused: {config.password} {config.options} {config.endpoint} {pin}"
        logging.getLogger("judge").warning(text)
        self.run.say(text)
        lost = Failure(boundary=Boundary.REWARD, message=text)
        return [Group(task=group.task, trajectories=tuple(
            one.replace(failure=lost) for one in group.trajectories)) for group in super().collect(request)]
"""
PLACES: dict[str, Callable[[str], str]] = {
    "a field of a secret type": lambda secret: f"reward.0.pin={toml_value(secret)}",
    "a key": lambda secret: f"reward.0.password={toml_value(secret)}",
    "a key in a table": lambda secret: f"reward.0.options.judge.api_key={toml_value(secret)}",
    "a key in an inline table": lambda secret: f"reward.0.options={{judge={{refresh_token={toml_value(secret)}}}}}",
    "a key in a list": lambda secret: f"reward.0.options.users=[1, {{passwd={toml_value(secret)}}}]",
    "a table of secrets": lambda secret: f"reward.0.options.credentials={{user='me', word={toml_value(secret)}}}",
    "a list of secrets": lambda secret: f"reward.0.options.secrets=[{toml_value(secret)}]",
    "a header": lambda secret: f'reward.0.options.headers={{"Authorization" = {toml_value(secret)}}}',
    "a whole table": lambda secret: f'reward=[{{id="mine.py:Judge", password={toml_value(secret)}}}]',
}
SECRETS = st.text(alphabet="abcXYZ19-_.$%\"'\\é漢 :", min_size=6, max_size=20).map(lambda text: f"sk{text}k")
URL_SECRETS = st.text(alphabet="abcXYZ19-_.$%", min_size=6, max_size=20).map(lambda text: f"sk{text}k")
IN_PROCESS = settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    forget()


@pytest.fixture
def judge(toy: Any) -> None:
    Path("mine.py").write_text(JUDGE, encoding="utf-8")
    Path("told.py").write_text(TOLD, encoding="utf-8")


def written() -> str:
    """The contents of all files of all runs."""
    parts = []
    for path in Path("runs").rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            parts.append((gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace"))
    return "\n".join(parts)


def forms(secret: str) -> set[str]:
    """A secret as it is, and as texts quote it."""
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}


def leaked(secret: str, *texts: str) -> list[str]:
    return [form for form in forms(secret) for text in texts if form in text]


def test_secrets_are_recognised_by_their_keys() -> None:
    assert [key for key in SECRET_KEYS if not is_secret(key)] == []
    assert [key for key in ORDINARY_KEYS if is_secret(key)] == []


@pytest.mark.parametrize("place", PLACES)
def test_secret_reaches_no_file_and_no_output(rlcore: Call, judge: None, place: str) -> None:
    check_places(rlcore, place, "hunter2-hunter2")


def test_retried_run_tells_which_overrides_have_secrets_and_refuses_those_of_files(
    rlcore: Call, judge: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOLD_FILE, "told")
    Path("secret.toml").write_text('[[reward]]\nid = "mine.py:Judge"\npassword = "hunter2-hunter2"\n', "utf-8")
    refused = rlcore("run", "-p", "toy", "-c", "secret.toml", "--retries", "1")
    assert refused.status == 2
    assert "only if it is on the command line" in refused.err
    assert "secret.toml:3" in refused.err
    assert "hunter2" not in refused.err
    assert not Path("runs").exists()
    given = ("reward.0.id=mine.py:Judge", "reward.0.count=2", "reward.0.password=hunter2-hunter2")
    assert rlcore("run", "-p", "toy", *given, "--retries", "1").status == 0
    directory, *places = json.loads(Path("told").read_text("utf-8"))
    assert (Path(directory) / "config.toml").is_file()
    assert places == [2]


@pytest.mark.long
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(sorted(PLACES)), secret=SECRETS)
def test_any_secret_reaches_no_file_and_no_output(rlcore: Call, judge: None, place: str, secret: str) -> None:
    check_places(rlcore, place, secret)


def check_places(rlcore: Call, place: str, secret: str) -> None:
    """Run commands that succeed and fail with a secret in the configuration, and search for it everywhere."""
    override = PLACES[place](secret)
    given = ("-p", "toy", "reward.0.id=mine.py:Judge", "sampler.id=told.py:Sampler", override)
    runs = [
        rlcore("run", *given, "--dry-run", "-v"),
        rlcore("config", "show", *given, "--origin"),
        rlcore("config", "show", *given, "--json", "--origin"),
        rlcore("run", *given, "layout=stamped"),
        rlcore("run", *given, "--json"),
        rlcore("eval", *given, "--json"),
    ]
    assert [done.status for done in runs] == [0] * len(runs), runs
    refused = [
        rlcore("run", *given, "reward.0.fail=true"),
        rlcore("run", *given, "reward.0.count=many"),
        rlcore("run", *given, "reward.0.cuont=1"),
        rlcore("run", *given, "trainer.id=nothing"),
        rlcore("run", *given, override.replace("reward.0.", "reward.0.x", 1)),
        rlcore("run", *given, override.replace("=", "=[[", 1)),
    ]
    assert all(done.status == 2 for done in refused[:4])
    texts = [text for done in (*runs, *refused) for text in (done.out, done.err)]
    assert leaked(secret, *texts, written()) == []


@pytest.mark.parametrize("place", PLACES)
def test_resuming_asks_for_a_secret_by_name(rlcore: Call, judge: None, place: str) -> None:
    override = PLACES[place]("hunter2-hunter2")
    given = ("-p", "toy", "reward.0.id=mine.py:Judge", "sampler.id=told.py:Sampler", override, "name=mine")
    assert rlcore("run", *given).status == 0
    asked = rlcore("run", "--resume", "runs/mine", "trainer.steps=4")
    assert asked.status == 2
    key = override.partition("=")[0] if "=[{" not in override[:8] else "reward.0.password"
    assert f"missing secret  {key}" in asked.err
    assert "environment variable" in asked.err
    assert rlcore("run", "--resume", "runs/mine", "trainer.steps=4", override).status == 0
    assert rlcore("eval", "runs/mine").status == 2
    assert rlcore("eval", "runs/mine", override).status == 0
    assert leaked("hunter2-hunter2", written()) == []


def test_a_default_that_looks_like_a_secret_is_not_asked_for(rlcore: Call, judge: None) -> None:
    assert rlcore("run", "-p", "toy", "reward.0.id=mine.py:Judge", "name=mine").status == 0
    assert rlcore("run", "--resume", "runs/mine", "trainer.steps=4").status == 0
    assert "a-default-token" not in written()


@IN_PROCESS
@given(secret=URL_SECRETS)
def test_password_of_a_url_reaches_no_file_and_no_output(rlcore: Call, judge: None, secret: str) -> None:
    override = f"reward.0.endpoint=https://me:{secret}@host/v1?api_key={secret}&x=1"
    given = ("-p", "toy", "reward.0.id=mine.py:Judge", "sampler.id=told.py:Sampler", override)
    runs = [rlcore("run", *given, "--dry-run", "-v"), rlcore("run", *given), rlcore("config", "show", *given, "--json")]
    assert [done.status for done in runs] == [0, 0, 0]
    refused = [
        rlcore("run", *given, "reward.0.fail=true"),
        rlcore("run", "-p", "toy", f"model=https://me:{secret}@host/x"),
        rlcore("eval", f"model=https://me:{secret}@host/x"),
        rlcore("data", "show", f"https://me:{secret}@host/x"),
    ]
    assert all(done.status == 2 for done in refused)
    texts = [text for done in (*runs, *refused) for text in (done.out, done.err)]
    assert leaked(secret, *texts, written()) == []


def test_secret_of_a_file_is_not_repeated(rlcore: Call, judge: None) -> None:
    lines = ["[[reward]]", 'id = "mine.py:Judge"', 'password = "hunter2-hunter2"', 'cuont = "x"']
    Path("more.toml").write_text("\n".join(lines), encoding="utf-8")
    done = rlcore("run", "-p", "toy", "-c", "more.toml")
    assert (done.status, "cuont" in done.err) == (2, True)
    assert leaked("hunter2-hunter2", done.out, done.err) == []
    Path("more.toml").write_text("\n".join(lines[:3]), encoding="utf-8")
    assert rlcore("run", "-p", "toy", "-c", "more.toml").status == 0
    assert leaked("hunter2-hunter2", written()) == []


def test_short_secret_is_masked_at_its_key(rlcore: Call, judge: None) -> None:
    given = ("-p", "toy", "reward.0.id=mine.py:Judge", "reward.0.pin=7x9q")
    shown = rlcore("config", "show", *given, "--origin").out
    assert rlcore("run", *given).status == 0
    assert rlcore("run", *given, "reward.0.cuont=1", "reward.0.pin=[]").status == 2
    assert "7x9q" not in shown + written()
    assert f'pin = "{MASK}"' in shown


def test_masked_configuration_keeps_everything_else() -> None:
    tree = {
        "url": "https://me:pass@host/x",
        "repository": "ssh://git@host/x",
        "list": [{"password": "abc", "port": 5}, "plain"],
        "credentials": {"user": "me", "verify": True, "empty": "", "none": None, "pin": 12},
    }
    assert redacted(tree) == {
        "url": f"https://{MASK}@host/x",
        "repository": "ssh://git@host/x",
        "list": [{"password": MASK, "port": 5}, "plain"],
        "credentials": {"user": MASK, "verify": True, "empty": "", "none": None, "pin": MASK},
    }


def test_arguments_are_masked() -> None:
    given = ["run", "reward.judge.api_key=sk-1", "url=https://me:pass@host/x", "seed=1", "--api-key", "sk-1", "x"]
    given += ['reward=[{id="x", password="sk-1"}]', "--password=sk-1", "a.options={token='sk-1'}"]
    assert mask_arguments(given) == [
        *("run", f"reward.judge.api_key={MASK}", f"url=https://{MASK}@host/x", "seed=1", "--api-key", MASK, "x"),
        *(f"reward={MASK}", f"--password={MASK}", f"a.options={MASK}"),
    ]


@settings(max_examples=50)
@given(secret=SECRETS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_remembered_secret_is_masked_in_any_text(secret: str, before: str, after: str) -> None:
    forget()
    remember(secret)
    for form in forms(secret):
        assert leaked(secret, redact(f"{before}{form}{after}")) == []


def test_masked_value_is_asked_for_where_it_came_from() -> None:
    layer = values_layer({"seed": 1, "model": {"path": f"https://{MASK}@host/x"}}, "mine.toml:1")
    with pytest.raises(ProblemsError) as raised:
        resolve([layer], Registry())
    (problem,) = raised.value.problems
    assert (problem.kind, problem.path, problem.origin) == ("missing secret", "model.path", "mine.toml:1")


def test_shown_configuration_is_valid_toml(rlcore: Call, judge: None) -> None:
    shown = rlcore("config", "show", "-p", "toy", "reward.0.id=mine.py:Judge", "reward.0.password=abc").out
    assert tomllib.loads(shown)["reward"][0]["password"] == MASK


@pytest.mark.parametrize("text", ["x" * 200_000, "name=" + "y" * 200_000, "k=" + "a+" * 100_000, "http://" * 30_000])
def test_long_arguments_are_masked_in_linear_time(text: str) -> None:
    started = time.perf_counter()
    assert mask_arguments([text, f"{text} postgres+psycopg://user:word@host"])[1].endswith(f"://{MASK}@host")
    assert time.perf_counter() - started < 5  # a quadratic search takes minutes
