"""``rlcore merge --upload`` against an HTTP server that answers as the Hugging Face hub does."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from safetensors.torch import load, save_file

TOKEN = "hf_" + "s3cret" * 5


class Hub(ThreadingHTTPServer):
    """Stores commits. Rejects requests if ``closed``, and closes connections if ``broken``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.created: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.tokens: set[str | None] = set()
        self.closed = self.broken = False


class Answers(BaseHTTPRequestHandler):
    """Requests to create a repository, to prepare an upload and to commit files."""

    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.tokens.add(self.headers.get("Authorization"))
        address = f"http://127.0.0.1:{self.server.server_port}/me/model"
        if self.server.broken:
            self.close_connection = True
            return None
        if self.server.closed:
            return self._answer({"error": "this repository is not yours"}, 403)
        if self.path.endswith("/repos/create"):
            self.server.created.append(json.loads(body))
            return self._answer({"url": address, "name": "me/model"})
        if self.path.endswith("/validate-yaml"):
            return self._answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            return self._answer({"files": [{**one, "uploadMode": "regular", "shouldIgnore": False} for one in asked]})
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        return self._answer({"commitUrl": f"{address}/commit/1", "commitOid": "1", "success": True})

    def do_GET(self) -> None:
        if self.path.endswith("/whoami-v2") and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer({"error": "Invalid credentials"}, 401)
        return self._answer({"id": "me/model", "name": "me", "sha": "0", "siblings": []})

    def _answer(self, value: Any, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def merge(hub: Hub, folder: Path, repository: str = "me/model", **more: str) -> subprocess.CompletedProcess[str]:
    source = folder / "source"
    source.mkdir()
    save_file({"weight": torch.arange(6.0).reshape(2, 3)}, source / "model.safetensors")
    (source / "config.json").write_text("{}")
    command = [sys.executable, "-m", "rlcore", "merge", str(source), "--out", str(folder / "merged")]
    environment = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_TOKEN": TOKEN}
    environment |= {"HF_HUB_OFFLINE": "0", "HF_HOME": str(folder / "home"), "HF_HUB_DISABLE_XET": "1", **more}
    return subprocess.run(
        [*command, "--upload", repository], env=environment, capture_output=True, text=True, check=False
    )


def test_upload_sends_every_file(hub: Hub, tmp_path: Path) -> None:
    done = merge(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [(one["name"], one.get("organization")) for one in hub.created] == [("model", "me")]
    assert hub.tokens == {f"Bearer {TOKEN}"}
    merged = tmp_path / "merged"
    assert hub.files == {path.name: path.read_bytes() for path in merged.iterdir()}
    assert b"# model\n" in hub.files["README.md"]
    assert torch.equal(load(hub.files["model.safetensors"])["weight"], torch.arange(6.0).reshape(2, 3))
    assert "me/model" in done.stdout
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_failed_upload_keeps_the_merged_folder(hub: Hub, tmp_path: Path, how: str) -> None:
    setattr(hub, how, True)
    done = merge(hub, tmp_path)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "hf upload me/model" in done.stderr
    assert "Traceback" not in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert (tmp_path / "merged" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("repository", "more"),
    [
        ("me/model", {"HF_ENDPOINT": "http://127.0.0.1:9"}),
        ("me/model", {"HF_TOKEN": "hf_of_another_user"}),
        ("me/my/model", {}),
    ],
    ids=["no-network", "another-token", "no-name"],
)
def test_impossible_upload_is_rejected_before_the_merge(
    hub: Hub, tmp_path: Path, repository: str, more: dict[str, str]
) -> None:
    done = merge(hub, tmp_path, repository, **more)
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert f"hf upload {repository} {tmp_path / 'merged'}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "merged").exists()
    assert hub.created == []
