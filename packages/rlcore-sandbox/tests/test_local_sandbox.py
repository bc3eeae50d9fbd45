from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from PIL import Image
from rlcore.errors import SandboxFailure
from rlcore.types import CodeResult, SandboxLimits
from rlcore_sandbox.local import LocalSandbox, LocalSession

LIMITS = SandboxLimits(output_characters=400, images=3, image_pixels=40_000, cpu_s=60.0)
"""The time limit of a cell leaves room for a busy machine."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[LocalSandbox]:
    found = LocalSandbox("namespaces", LIMITS)
    yield found
    asyncio.run(found.close())


def picture(width: int = 20, height: int = 10, colour: str = "red", mode: str = "RGB") -> bytes:
    written = io.BytesIO()
    Image.new(mode, (width, height), colour).save(written, format="PNG")
    return written.getvalue()


def in_session(
    sandbox: LocalSandbox, work: Callable[[LocalSession], Coroutine[Any, Any, None]], *images: bytes
) -> None:
    async def whole() -> None:
        session = await sandbox.open(images)
        try:
            await work(session)
        finally:
            await session.close()

    asyncio.run(whole())


def results(sandbox: LocalSandbox, *cells: str, images: tuple[bytes, ...] = ()) -> list[CodeResult]:
    found: list[CodeResult] = []

    async def work(session: LocalSession) -> None:
        for cell in cells:
            found.append(await session.run(cell))

    in_session(sandbox, work, *images)
    return found


def size(data: bytes) -> tuple[int, int]:
    return Image.open(io.BytesIO(data)).size


def test_names_persist_from_cell_to_cell(sandbox: LocalSandbox) -> None:
    first, second = results(sandbox, "import math\nx = 3", "def area(r):\n    return round(math.pi * r * x)\narea(2)")
    assert first.ok
    assert first.value == ""
    assert second.value == "19"


def test_output_streams_and_the_last_value_are_kept_apart(sandbox: LocalSandbox) -> None:
    (result,) = results(sandbox, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n[1, 'two']")
    assert (result.stdout, result.stderr, result.value) == ("out\n", "err\n", "[1, 'two']")
    assert (result.status, result.error, result.reset) == ("ok", "", False)


def test_a_semicolon_hides_the_last_value(sandbox: LocalSandbox) -> None:
    hidden = ["1 + 1;", "None", "", "1; # note", "1 ;  # a;b\n# c", "'é' \\\n;", "(1);\r\n", "if 1:\n    1;"]
    assert [result.value for result in results(sandbox, *hidden)] == [""] * len(hidden)
    shown = ["1 # trailing;", "'a;'", "('é'\n# b;\n)", "1;2", "# é;\n'é' # é;", "1\r# b;"]
    found = [result.value for result in results(sandbox, *shown)]
    assert found == ["1", "'a;'", "'é'", "2", "'é'", "1"]


def test_output_of_child_processes_and_descriptors_is_captured(sandbox: LocalSandbox) -> None:
    code = "import os\nos.write(1, b'direct\\n')\nprint('text')\nos.write(2, b'error\\n');"
    (result,) = results(sandbox, code)
    assert result.stdout == "direct\ntext\n"
    assert result.stderr == "error\n"


def test_a_traceback_names_the_lines_of_the_cell(sandbox: LocalSandbox) -> None:
    define, fail = results(sandbox, "def half(x):\n    return x / 0", "print('before')\nhalf(3)")
    assert define.ok
    assert fail.status == "error"
    assert fail.stdout == "before\n"
    assert fail.error.splitlines() == [
        "Traceback (most recent call last):",
        '  File "<cell 2>", line 2, in <module>',
        "    half(3)",
        '  File "<cell 1>", line 2, in half',
        "    return x / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_a_traceback_of_a_library_is_short(sandbox: LocalSandbox) -> None:
    (result,) = results(sandbox, "Image.open('missing.png')")
    lines = result.error.splitlines()
    assert len(lines) == 5
    assert "PIL/Image.py" in lines[3]
    assert "missing.png" in lines[4]


def test_a_deep_recursion_has_a_short_traceback(sandbox: LocalSandbox) -> None:
    (result,) = results(sandbox, "def f(n):\n    return f(n + 1)\nf(0)")
    assert "RecursionError" in result.error
    assert len(result.error) <= LIMITS.output_characters


def test_a_syntax_error_names_the_line(sandbox: LocalSandbox) -> None:
    results_of = results(sandbox, "x = 1\nprint(x", "x = '\0'", "x")
    assert [result.status for result in results_of] == ["error"] * 3
    assert "line 2" in results_of[0].error
    assert "SyntaxError" in results_of[0].error


@pytest.mark.parametrize(
    "code", ["import sys; sys.exit(3)", "exit()", "raise KeyboardInterrupt", "raise BaseException('x')", "input()"]
)
def test_code_cannot_end_the_session_with_an_exception(sandbox: LocalSandbox, code: str) -> None:
    _, ended, after = results(sandbox, "x = 7", code, "x")
    assert ended.status == "error"
    assert ended.error
    assert after.value == "7"
    assert not after.reset


def test_hostile_exceptions_and_values_are_reported(sandbox: LocalSandbox) -> None:
    code = "class Bad(Exception):\n    def __str__(self):\n        raise SystemExit\n    __repr__ = __str__\n"
    raised, shown, after = results(sandbox, f"{code}raise Bad", "Bad()", "1")
    assert raised.error.splitlines()[-1].startswith("Bad")
    assert shown.status == "error"
    assert after.value == "1"


def test_long_output_keeps_the_beginning_and_the_end(sandbox: LocalSandbox) -> None:
    cells = ["for i in range(100000):\n    print(i)", "'a' * 99999 + 'z'", "raise ValueError('b' * 99999)"]
    printed, value, error = results(sandbox, *cells)
    for text in (printed.stdout, value.value, error.error):
        assert len(text) <= LIMITS.output_characters
        assert "left out" in text
    assert printed.stdout.startswith("0\n1\n2\n")
    assert printed.stdout.endswith("99998\n99999\n")
    assert value.value.endswith("z'")
    assert error.error.startswith("Traceback")


def test_text_that_is_no_valid_unicode_is_replaced(sandbox: LocalSandbox) -> None:
    (result,) = results(sandbox, r"import os; os.write(1, b'\xff\n'); print('\ud800'); '\ud800' + chr(233)")
    assert result.stdout == "�\n\\ud800\n"
    assert result.value.endswith("é'")
    result.value.encode("utf-8")


@pytest.mark.parametrize(
    "patch",
    [
        "import io, sys; sys.stdout = io.StringIO()",
        "import sys; sys.stdout = sys.stderr = None",
        "import sys; sys.stdout.close(); sys.stderr.close()",
        "import json; json.dumps = json.loads = None",
        "import os; os.write = os.read = os.getpid = lambda *a: 1 / 0",
        "import builtins; builtins.repr = builtins.compile = builtins.exec = builtins.eval = None",
        "import sys; sys.settrace(lambda *a: 1 / 0); sys.setprofile(lambda *a: 1 / 0)",
        "import sys; sys.setrecursionlimit(60)",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0.01)",
        "import sys; del sys.modules['__main__']; sys.modules.clear()",
        "import linecache, traceback, ast; linecache.cache = traceback.walk_tb = None",
    ],
)
def test_replaced_functions_do_not_break_later_cells(sandbox: LocalSandbox, patch: str) -> None:
    _, after, failing = results(sandbox, patch, "print('seen')\n5", "1 / 0")
    assert (after.status, after.stdout, after.value) == ("ok", "seen\n", "5"), after
    assert "ZeroDivisionError" in failing.error


def test_timers_of_a_cell_end_with_it(sandbox: LocalSandbox) -> None:
    code = "import signal\nfor number in (signal.SIGVTALRM, signal.SIGPROF): signal.signal(number, lambda *a: 1 / 0)\n"
    code += "signal.setitimer(signal.ITIMER_VIRTUAL, 0.05); signal.setitimer(signal.ITIMER_PROF, 0.05)"
    started, busy = results(sandbox, code, "sum(range(10**7))")
    assert started.ok
    assert busy.value == "49999995000000", busy


def test_threads_that_a_cell_leaves_end_with_a_restart(sandbox: LocalSandbox) -> None:
    code = "import os, threading, time\ndef work():\n    while True: os.write(1, b'late'), time.sleep(0.001)\n"
    first, second = results(
        sandbox,
        f"{code}threading.Thread(target=work, daemon=True).start()\ntime.sleep(0.05)",
        "import time\ntime.sleep(0.1)\nprint('mine')",
    )
    assert first.ok
    assert first.reset
    assert "late" in first.stdout
    assert "Threads" in first.stderr
    assert (second.stdout, second.reset) == ("mine\n", False)


def test_a_forked_process_does_not_answer_for_the_session(sandbox: LocalSandbox) -> None:
    forked, after = results(sandbox, "import os\nx = os.fork()\nx > 0", "x > 0")
    assert forked.value == "True"
    assert after.value == "True"


def test_initial_images_are_variables(sandbox: LocalSandbox) -> None:
    images = picture(20, 10), picture(8, 6, "blue")
    (result,) = results(sandbox, "image_clue_0.size, image_clue_1.getpixel((0, 0)), image_clue_1.mode", images=images)
    assert result.value == "((20, 10), (0, 0, 255), 'RGB')"
    assert result.images == ()


def test_initial_images_are_sent_once_and_decoded_when_they_are_used(sandbox: LocalSandbox) -> None:
    undecoded = "bool(image_clue_0.tile)"
    before, used, after = results(
        sandbox,
        f"same = image_clue_0\n{undecoded}",
        "image_clue_0.putpixel((0, 0), (1, 2, 3))",
        f"same is image_clue_0, image_clue_0.getpixel((0, 0)), {undecoded}",
        images=(picture(),),
    )
    assert (before.value, used.error) == ("True", "")
    assert after.value == "(True, (1, 2, 3), False)"


def test_initial_images_are_upright_and_without_transparency(sandbox: LocalSandbox) -> None:
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (20, 10)).save(turned, format="JPEG", exif=exif)
    clear = io.BytesIO()
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(clear, format="PNG")
    code = "image_clue_0.size, image_clue_1.mode, image_clue_1.getpixel((0, 0))"
    (result,) = results(sandbox, code, images=(turned.getvalue(), clear.getvalue()))
    assert result.value == "((10, 20), 'RGB', (255, 255, 255))"


def test_an_image_that_cannot_be_read_is_a_failure_of_the_sandbox(sandbox: LocalSandbox) -> None:
    with pytest.raises(SandboxFailure, match="image 1 of 2"):
        results(sandbox, "1", images=(picture(), b"no image"))


def test_shown_images_become_the_next_variables(sandbox: LocalSandbox) -> None:
    shown, used = results(
        sandbox,
        "image_clue_0.crop((0, 0, 5, 4)).show()\ndisplay(image_clue_0)\nimage_clue_0.resize((30, 15))",
        "image_clue_1.size, image_clue_2.size, image_clue_3.size",
        images=(picture(),),
    )
    assert shown.image_names == ("image_clue_1", "image_clue_2", "image_clue_3")
    assert [size(image) for image in shown.images] == [(5, 4), (20, 10), (30, 15)]
    assert shown.value == ""
    assert used.value == "((5, 4), (20, 10), (30, 15))"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("plt.plot([1, 2])", 1),
        ("plt.plot([1, 2]); plt.show()", 1),
        ("for i in range(2):\n    plt.figure(figsize=(1, 1))\n    plt.show(block=False)", 2),
        ("fig, ax = plt.subplots(figsize=(1, 1))\nfig.show()", 1),
        ("fig = plt.figure(figsize=(1, 1))\nfig", 1),
        ("import matplotlib\nmatplotlib.use('Agg')\nplt.figure(); plt.show(); plt.figure()", 2),
        ("plt.show = None\nplt.figure(figsize=(1, 1))", 1),
        ("from matplotlib.pyplot import *\nfigure(); show()", 1),
        ("def draw():\n    if True:\n        plt.figure(figsize=(1, 1)); plt.show()\ndraw()", 1),
        ("plt.figure(); plt.close()", 0),
        ("plt.figure(figsize=(1, 1))\n1 / 0", 1),
    ],
)
def test_every_shown_figure_is_captured(sandbox: LocalSandbox, code: str, count: int) -> None:
    pytest.importorskip("matplotlib")
    drawn, after = results(sandbox, code, "len(plt.get_fignums())")
    assert len(drawn.images) == len(drawn.image_names) == count, drawn
    assert after.value == "0"
    assert after.images == ()


@pytest.mark.parametrize(
    "code",
    [
        "from IPython.display import display\ndisplay(image_clue_0)",
        "from IPython.display import *\ndisplay(image_clue_0)",
        "import IPython\nIPython.display.display(image_clue_0)",
        "from IPython import display\ndisplay.display(image_clue_0)",
        "from IPython.display import Image as Shown\nimage_clue_0.save('a.png')\nShown('a.png')",
        "from IPython.display import Image as Shown\nimage_clue_0.save('a.png')\nShown(open('a.png', 'rb').read())",
        "import sys\nsys.modules.pop('IPython', None)\nfrom IPython.display import display\ndisplay(image_clue_0)",
    ],
)
def test_display_of_a_notebook_is_captured(sandbox: LocalSandbox, code: str) -> None:
    first, again = results(sandbox, code, "from IPython.display import display\ndisplay('text')", images=(picture(),))
    assert [size(image) for image in first.images] == [(20, 10)], first
    assert (again.stdout, again.images) == ("text\n", ())


def test_text_of_a_notebook_is_printed(sandbox: LocalSandbox) -> None:
    (result,) = results(sandbox, "from IPython.display import *\nclear_output(wait=True)\ndisplay(Markdown('# a'))")
    assert (result.stdout, result.error) == ("# a\n", "")


def test_more_images_than_allowed_are_counted(sandbox: LocalSandbox) -> None:
    (result,) = results(sandbox, "for i in range(10):\n    display(image_clue_0)", images=(picture(),))
    assert len(result.images) == LIMITS.images
    assert result.omitted_images == 10 - LIMITS.images


def test_large_images_are_reduced(sandbox: LocalSandbox) -> None:
    pytest.importorskip("matplotlib")
    cells = ["Image.new('RGB', (2000, 500))", "plt.figure(figsize=(100, 100), dpi=300)"]
    for result in results(sandbox, *cells):
        (image,) = result.images
        width, height = size(image)
        assert 0.8 * LIMITS.image_pixels < width * height <= LIMITS.image_pixels


def test_an_extreme_image_is_left_out_with_a_reason(sandbox: LocalSandbox) -> None:
    result, empty = results(sandbox, "Image.new('RGB', (3000, 2))", "Image.new('RGB', (0, 5))")
    assert (result.images, result.omitted_images) == ((), 0), "omitted images are those above the limit"
    assert "3000 x 2" in result.stderr
    assert "factor of 200" in result.stderr
    assert "0 x 5" in empty.stderr
    assert "empty" in empty.stderr


def test_images_of_every_mode_can_be_shown(sandbox: LocalSandbox) -> None:
    code = "for mode in {!r}:\n    display(Image.new(mode, (4, 4)))"
    modes = ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV", "I", "F", "I;16", "LAB"]
    found = results(sandbox, *(code.format(modes[start : start + 3]) for start in range(0, len(modes), 3)))
    assert [(result.error, len(result.images)) for result in found] == [("", 3)] * 4


def test_images_of_one_large_value_and_of_negative_values_can_be_shown(sandbox: LocalSandbox) -> None:
    cells = ["Image.new('I', (4, 4), 40000)", "Image.new('F', (4, 4), -1.0)", "Image.new('I;16', (4, 4), 300)"]
    found = results(sandbox, *cells)
    assert [(result.error, len(result.images)) for result in found] == [("", 1)] * 3


def test_equal_code_draws_equal_numbers_in_all_sessions(sandbox: LocalSandbox) -> None:
    pytest.importorskip("numpy")
    code = "import random\nrandom.random(), np.random.rand(), hash('text')"
    assert results(sandbox, code)[0].value == results(sandbox, code)[0].value


def test_the_environment_of_the_host_is_not_visible(sandbox: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLCORE_TEST_SECRET", "hidden")
    (result,) = results(sandbox, "import os\nsorted(os.environ)")
    assert "RLCORE_TEST_SECRET" not in result.value
    assert "OMP_NUM_THREADS" in result.value


def test_a_closed_session_refuses_cells(sandbox: LocalSandbox) -> None:
    async def work(session: LocalSession) -> None:
        await session.close()
        await session.close()
        with pytest.raises(SandboxFailure, match="closed"):
            await session.run("1")

    in_session(sandbox, work)


def test_concurrent_cells_of_a_session_run_one_after_the_other(sandbox: LocalSandbox) -> None:
    async def work(session: LocalSession) -> None:
        cells = [f"import time\ntime.sleep(0.05)\nprint({number})\n{number}" for number in range(5)]
        found = await asyncio.gather(*map(session.run, cells))
        assert [(result.stdout, result.value) for result in found] == [
            (f"{number}\n", f"{number}") for number in range(5)
        ]

    in_session(sandbox, work)


def test_a_session_refuses_cells_of_another_thread(sandbox: LocalSandbox) -> None:
    async def work(session: LocalSession) -> None:
        def in_a_thread() -> CodeResult:
            return asyncio.run(session.run("print('other')"))

        own = asyncio.ensure_future(session.run("import time\ntime.sleep(0.3)\nprint('own')"))
        with pytest.raises(SandboxFailure, match="event loop"):
            await asyncio.to_thread(in_a_thread)
        assert (await own).stdout == "own\n"
        assert (await session.run("print('next')")).stdout == "next\n"

    in_session(sandbox, work)


def test_sessions_share_no_names(sandbox: LocalSandbox) -> None:
    async def whole() -> list[CodeResult]:
        first, second = await asyncio.gather(sandbox.open(), sandbox.open())
        try:
            await asyncio.gather(first.run("x = 1"), second.run("x = 2"))
            return await asyncio.gather(first.run("x"), second.run("x"))
        finally:
            await asyncio.gather(first.close(), second.close())

    assert [result.value for result in asyncio.run(whole())] == ["1", "2"]


def test_a_session_leaves_no_descriptors_and_files(sandbox: LocalSandbox) -> None:
    results(sandbox, "1")
    before = len(os.listdir("/proc/self/fd"))
    results(sandbox, "open('file', 'w').write('x'); import os; os.makedirs('a/b'); os.chmod('a', 0)")
    assert len(os.listdir("/proc/self/fd")) == before


SHARED = (
    "import multiprocessing\nmultiprocessing.Pool(2).map(abs, [-1, -2])",
    "import multiprocessing\nmultiprocessing.Queue()",
    "import multiprocessing\nmultiprocessing.Value('i', 3)",
    "import multiprocessing.shared_memory\nmultiprocessing.shared_memory.SharedMemory(create=True, size=10)",
    "import concurrent.futures\nlist(concurrent.futures.ProcessPoolExecutor(2).map(abs, [-1]))",
)


@pytest.mark.parametrize("backend", ["namespaces", "landlock"])
def test_processes_with_shared_memory_are_refused_by_name(backend: Any) -> None:
    sandbox = LocalSandbox(backend, LIMITS)
    try:
        found = results(sandbox, *SHARED, "1 + 1")
    finally:
        asyncio.run(sandbox.close())
    assert [result.status for result in found] == ["error"] * len(SHARED) + ["ok"]
    for result in found[:-1]:
        assert "multiprocessing" in result.error
        assert "is not allowed in this sandbox" in result.error
        assert "compute in one process" in result.error
        assert "thread" not in result.error  # the other backends have one thread
