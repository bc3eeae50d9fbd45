"""The server: who may ask, and what answers look like."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from rlcore_view.library import Library
from rlcore_view.server import HEADERS, Application, Server
from starlette.testclient import TestClient

TOKEN = "the-token-of-the-test"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def client(run: Path) -> TestClient:
    application = Application(Library([run.parent]), TOKEN, "127.0.0.1", 7080)
    return TestClient(application, "http://127.0.0.1:7080", raise_server_exceptions=False, follow_redirects=False)


def test_token_of_the_address_becomes_a_cookie(client: TestClient) -> None:
    for path in (
        "/",
        "/view.js",
        "/api/runs",
        "/media/first/x",
        "/nothing",
        "/?ticket=wrong",
        "/api/runs?ticket=" + TOKEN,
    ):
        refused = client.get(path)
        assert (refused.status_code, "printed" in refused.text) == (403, True), path
    entered = client.get(f"/?ticket={TOKEN}")
    cookie = entered.headers["set-cookie"]
    assert (entered.status_code, entered.headers["location"]) == (303, "/")
    assert all(part in cookie for part in ("rlcore-view-7080=", "HttpOnly", "SameSite=strict"))
    assert client.get("/").status_code == 200
    assert client.get("/api/runs").json()["runs"][0]["id"] == "first"
    client.cookies.clear()
    assert client.get("/api/runs", headers=KNOWN).status_code == 200
    assert client.get("/api/runs", headers={"Authorization": "Bearer ü".encode("latin-1")}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example:7080", "127.0.0.1", "127.0.0.1:7081", "localhost.evil:7080", "10.0.0.9:7080"]
)
def test_requests_for_other_hosts_are_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={**KNOWN, "Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:7080", "LOCALHOST:7080", "[::1]:7080"])
def test_names_of_the_loopback_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={**KNOWN, "Host": host}).status_code == 200


def test_any_address_of_the_machine_is_accepted_if_all_are_listened_on(run: Path) -> None:
    client = TestClient(Application(Library([run]), TOKEN, "0.0.0.0", 7080), "http://10.0.0.9:7080")
    assert client.get("/api/runs", headers=KNOWN).status_code == 200
    assert client.get("/api/runs", headers={**KNOWN, "Host": "evil.example:7080"}).status_code == 403


def test_only_reading_is_allowed(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert client.request(method, "/api/runs", headers=KNOWN).status_code == 405
    assert client.head("/api/runs", headers=KNOWN).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/runs/none", "/?ticket=wrong", "/nothing"])
def test_all_answers_have_the_headers(client: TestClient, path: str) -> None:
    for headers in ({}, KNOWN):
        found = client.get(path, headers=headers).headers
        assert {name: found[name] for name in HEADERS} == HEADERS


def test_page_has_no_inline_script_or_style(client: TestClient) -> None:
    page = client.get("/", headers=KNOWN).text
    assert '<div id="page">' in page
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.S) == [""]
    assert "<style" not in page
    assert " style=" not in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/runs/first/find?where=reward+%3D+1", 400),
        ("/api/runs/first/find?where=%F0%9F%98", 400),
        ("/api/runs/first/train/77", 404),
        ("/api/runs/%2e%2e%2ffirst", 404),
        ("/api/../config.toml", 404),
        ("/view.js/../../plugin.py", 404),
        ("/media/first/..%2fconfig.toml", 422),
        ("/api/runs/damaged", 422),
    ],
)
def test_errors_are_json_with_a_fix(run: Path, client: TestClient, path: str, status: int) -> None:
    shutil.copytree(run, run.with_name("damaged"))
    (run.with_name("damaged") / "config.toml").write_text("[", encoding="utf-8")
    found = client.get(path, headers=KNOWN)
    assert (found.status_code, sorted(found.json())) == (status, ["fix", "problem"])
    assert found.json()["problem"]


def test_unexpected_exception_is_one_answer(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug\nin two lines")

    with monkeypatch.context() as patch:
        patch.setattr("rlcore_view.server.answer", broken)
        found = client.get("/api/runs", headers=KNOWN)
    assert (found.status_code, found.json()["problem"].splitlines()) == (500, ["ZeroDivisionError: a bug in two lines"])
    assert client.get("/api/runs", headers=KNOWN).status_code == 200


def test_hostile_texts_stay_text(client: TestClient) -> None:
    found = client.get("/api/runs/first/train/1/0", headers=KNOWN)
    assert found.headers["content-type"] == "application/json"
    assert "<script>alert(1)</script>\u202e\x1b[31m\ufffd end" in found.json()["prompt"][0]["parts"][0]["text"]


def test_images_are_kept_and_answers_are_not(client: TestClient) -> None:
    group = client.get("/api/runs/first/evaluation/0/0", headers=KNOWN).json()
    (image,) = [part["image"] for part in group["prompt"][1]["parts"] if "image" in part]
    found = client.get(f"/media/first/{image}", headers=KNOWN)
    assert (found.headers["content-type"], "immutable" in found.headers["cache-control"]) == ("image/png", True)
    series = client.get("/api/runs/first/train/3/0", headers=KNOWN).json()["trajectories"][0]["segments"][0]["series"]
    frame = client.get(f"/media/first/{series[1]['frames'][0]}", headers=KNOWN)
    assert (frame.status_code, frame.headers["cache-control"]) == (200, "no-store")


def command(*words: str, folder: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    return subprocess.Popen(
        [sys.executable, "-m", "rlcore", "view", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_command_serves_until_ctrl_c(run: Path) -> None:
    with command("--port", "0", folder=run.parents[1]) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        found = re.search(r"(http://127.0.0.1:\d+)/\?ticket=(\S+)", lines[1])
        assert found, lines
        assert "ssh -N -L" in lines[2]
        asked = Request(f"{found[1]}/api/runs/first", headers={"Authorization": f"Bearer {found[2]}"})
        with urlopen(asked, timeout=20) as answer:
            assert (answer.status, answer.headers.get("server")) == (200, None)
        with pytest.raises(HTTPError, match="403") as refused:
            urlopen(f"{found[1]}/", timeout=20)
        refused.value.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""


def test_command_refuses_ports_in_use_and_paths_without_runs(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for words, message in ((["--port", port], "cannot listen"), (["nowhere"], "is not a run directory")):
            with command(*words, folder=run.parents[1]) as process:
                output, _ = process.communicate(timeout=60)
                assert (process.returncode, message in output, "fix" in output) == (2, True, True), output


def test_slow_connections_leave_descriptors_for_others(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore_view.server.MOST_CONNECTIONS", 8)
    monkeypatch.setattr("rlcore_view.server.REQUEST_S", 0.5)
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    server = Server(Application(Library([run]), TOKEN, *address))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    slow = [socket.create_connection(address, timeout=10) for _ in range(30)]
    for one in slow:
        with contextlib.suppress(OSError):  # it was refused
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")
    assert [closed(one) for one in slow] == [True] * len(slow)
    with urlopen(Request(f"http://127.0.0.1:{address[1]}/api/runs", headers=KNOWN), timeout=10) as found:
        assert found.status == 200
    server.stop()
    thread.join(10)
    assert not thread.is_alive()


def closed(connection: socket.socket) -> bool:
    """Whether the other side ends a connection, without an answer."""
    with connection, contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True
