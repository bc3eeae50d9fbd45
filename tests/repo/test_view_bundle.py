"""The built page in rlcore-view is that of its sources, whose unit tests pass."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from page_packages import PAGE, installed_page, npm

BUNDLE = PAGE.parent / "src" / "rlcore_view" / "bundle"
LARGEST = 150_000
"""Of the bundle in bytes, compressed."""


def test_bundle_is_small_and_fits_into_a_script_element() -> None:
    outside = rb"</script|</style|<!--|sourceMappingURL|https?://(?!www\.w3\.org/)"
    texts = {path.name: path.read_bytes() for path in BUNDLE.iterdir()}
    assert sorted(texts) == ["view.css", "view.js"]
    assert sum(len(gzip.compress(text)) for text in texts.values()) < LARGEST
    assert not re.search(outside, b"".join(texts.values()))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_page(tmp_path_factory.mktemp("view"))


@pytest.mark.long
def test_build_of_the_sources_gives_the_same_bytes(page: Path) -> None:
    done = npm("run build", page)
    assert done.returncode == 0, done.stdout + done.stderr
    built = page.parent / "src" / "rlcore_view" / "bundle"
    assert {path.name: path.read_bytes() for path in built.iterdir()} == {
        path.name: path.read_bytes() for path in BUNDLE.iterdir()
    }, "run npm install && npm run build in packages/rlcore-view/page"


@pytest.mark.long
def test_unit_tests_of_the_page_pass(page: Path) -> None:
    done = npm("test", page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\S+ fail 0$", done.stdout, re.MULTILINE), done.stdout
    assert not re.search(r"^\S+ pass 0$", done.stdout, re.MULTILINE), done.stdout
