"""iTerm2 panes with a fake `it2` that runs the typed commands in a slow shell."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from process_helpers import wait_for_pane_exit

from shoal.backends.iterm2_panes import Iterm2PaneManager
from shoal.core.clock import SystemClock
from shoal.core.errors import ProcessError
from shoal.core.teams.member_backends import PaneExit, PaneSpec

STAND_IN = Path(__file__).with_name("fake_it2.py")
LEAD = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    programs = tmp_path / "bin"
    programs.mkdir()
    it2 = programs / "it2"
    it2.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    it2.chmod(0o755)
    (tmp_path / "rc").write_text("sleep 1\n")
    yield {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "IT2_ROOT": str(tmp_path),
        "TERM_PROGRAM": "iTerm.app",
        "ITERM_SESSION_ID": f"w0t0p0:{LEAD}",
        "TERM": "xterm-256color",
    }
    for left in tmp_path.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(left.read_text()), signal.SIGTERM)


@pytest.fixture
async def panes(environ: dict[str, str]) -> AsyncIterator[Iterm2PaneManager]:
    made = Iterm2PaneManager(environ, SystemClock())
    yield made
    await made.aclose()


def list_calls(root: Path) -> list[list[str]]:
    return [json.loads(line) for line in (root / "calls").read_text().splitlines()]


def make_spec(root: Path, name: str, *argv: str, split: bool = True) -> PaneSpec:
    return PaneSpec(title=name, color="pink", argv=argv, cwd=root, env={"SAID": "it's $so"}, split=split)


@pytest.mark.spec("BCK-04")
async def test_a_command_runs_in_a_split_pane_and_its_exit_is_reported(
    panes: Iterm2PaneManager, tmp_path: Path
) -> None:
    assert panes.type == "iterm2"
    assert await panes.explain_unavailable() == ""
    out, gate = tmp_path / "out", tmp_path / "gate"
    os.mkfifo(gate)
    script = (
        f'printf "%s|%s|%s|%s" "$SAID" "$PWD" "$1" "$(test -t 0 && echo tty)" > {out}; exit $(cat {gate})'
    )
    session = await panes.open_pane(make_spec(tmp_path, "alice", "sh", "-c", script, "sh", "a 'b'"))
    assert await panes.is_pane_alive(session)
    os.kill(panes.find_pane_pid(session), 0)
    await asyncio.to_thread(gate.write_text, "5")
    assert await wait_for_pane_exit(panes, session) == PaneExit(status=5)
    assert out.read_text() == f"it's $so|{tmp_path}|a 'b'|tty"
    assert not await panes.is_pane_alive(session)
    split, name, run = list_calls(tmp_path)
    assert split == ["session", "split", "--vertical", "--session", LEAD]
    assert name == ["session", "set-name", "--session", session, "alice"]
    assert run[:4] == ["session", "run", "--session", session]
    assert "SAID" not in run[4]


@pytest.mark.slow
@pytest.mark.spec("BCK-04", "USR-20")
async def test_several_panes_start_in_slow_shells_and_only_own_panes_are_closed(
    panes: Iterm2PaneManager, tmp_path: Path
) -> None:
    wanted = [make_spec(tmp_path, f"m{number}", "sleep", "600") for number in range(4)]
    opened = await asyncio.gather(*map(panes.open_pane, wanted))
    assert len({*opened}) == 4
    splits = [call for call in list_calls(tmp_path) if call[1] == "split"]
    assert splits[0][2:] == ["--vertical", "--session", LEAD]
    assert [call[-1] for call in splits[1:]] == [*opened[:-1]]
    pids = [panes.find_pane_pid(each) for each in opened]
    await panes.close_pane(LEAD)
    await panes.close_pane(opened[0])
    await panes.close_pane(opened[0])
    assert await wait_for_pane_exit(panes, opened[0]) == PaneExit()
    # The user closes one.
    os.kill(int((tmp_path / f"{opened[1]}.pid").read_text()), signal.SIGTERM)
    await wait_for_pane_exit(panes, opened[1])
    tab = await panes.open_pane(make_spec(tmp_path, "own", "sleep", "600", split=False))
    assert ["tab", "new"] in list_calls(tmp_path)
    await panes.aclose()
    closed = [call[3] for call in list_calls(tmp_path) if call[1] == "close"]
    assert closed == [opened[0], opened[2], opened[3], tab]
    async with asyncio.timeout(20):
        for pid in pids:
            while Path(f"/proc/{pid}").exists():
                await asyncio.sleep(0.02)


@pytest.mark.spec("BCK-04")
async def test_iterm2_panes_need_iterm2_and_the_it2_program(environ: dict[str, str], tmp_path: Path) -> None:
    elsewhere = {name: value for name, value in environ.items() if not name.startswith(("TERM_P", "ITERM"))}
    assert (
        "This terminal is not iTerm2"
        in await Iterm2PaneManager(elsewhere, SystemClock()).explain_unavailable()
    )
    without = Iterm2PaneManager({**environ, "PATH": os.environ["PATH"]}, SystemClock())
    assert "pip install it2" in await without.explain_unavailable()
    with pytest.raises(ProcessError):
        await without.open_pane(make_spec(tmp_path, "alice", "true"))


async def test_an_error_of_it2_is_reported(environ: dict[str, str], tmp_path: Path) -> None:
    it2 = tmp_path / "bin" / "it2"
    it2.write_text("#!/bin/sh\necho 'Error: the Python API is off' >&2\nexit 2\n")
    panes = Iterm2PaneManager(environ, SystemClock())
    with pytest.raises(ProcessError, match="it2 session split failed: Error: the Python API is off"):
        await panes.open_pane(make_spec(tmp_path, "alice", "true"))


@pytest.mark.spec("BCK-04")
async def test_a_pane_whose_script_cannot_be_written_is_closed_again(
    panes: Iterm2PaneManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ProcessError, match=r"Cannot write the start script for alice: .*nowhere"):
        await panes.open_pane(make_spec(tmp_path, "alice", "true"))
    assert [call[:2] for call in list_calls(tmp_path)] == [["session", "split"], ["session", "close"]]
