"""Panes in a real tmux server: layout, content and end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from process_helpers import wait_for_pane_exit

from shoal.backends.tmux_control import TmuxControlClient
from shoal.core.errors import ProcessError
from shoal.core.teams.member_backends import PaneExit, PaneSpec
from tmux_server import TmuxServer, make_pane_spec, open_panes

pytestmark = pytest.mark.needs("tmux")


@pytest.mark.spec("BCK-03")
async def test_panes_are_split_off_the_leads_window_and_the_lead_keeps_more_than_half(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    async with open_panes(tmux.inside_env) as panes:
        opened = [await panes.open_pane(make_pane_spec(f"m{number}", tmp_path)) for number in range(4)]
        assert len({*opened}) == 4
        assert tmux.list_panes("#{pane_id} #{window_index}") == [f"{pane} 0" for pane in (lead, *opened)]
        widths = dict(row.split() for row in tmux.list_panes("#{pane_id} #{pane_width}"))
        assert int(widths[lead]) >= 100
        heights = {int(row) for row in tmux.list_panes("#{pane_height}")[1:]}
        assert max(heights) - min(heights) <= 3
        # Above each other beside the lead, which is as high as the window.
        first, *others = tmux.list_panes("#{pane_left} #{pane_at_top} #{pane_at_bottom}")
        assert first == "0 1 1"
        assert {row.split()[0] for row in others} == {str(int(widths[lead]) + 1)}
        # The user goes on where they were.
        assert tmux("display-message", "-p", "-t", "person", "#{pane_id} #{window_index}") == f"{lead} 0"
        for number, pane in enumerate(opened):
            await tmux.wait_for_text(pane, f"m{number}")
    assert tmux.list_panes("#{pane_id} #{pane_width}") == [f"{lead} 200"]


@pytest.mark.spec("USR-20", "BCK-03")
async def test_sixteen_panes_start_without_the_slow_shell(
    tmux: TmuxServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Panes do not start through the shell."""
    used = tmp_path / "used"
    shell = tmp_path / "slow-shell"
    shell.write_text(f'#!/bin/sh\ntouch {used}\nsleep 5\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    (Path(os.environ["HOME"]) / ".bashrc").write_text(f"touch {used}\nsleep 5\n")
    tmux.start_user_session()
    tmux("set-option", "-g", "default-shell", str(shell))
    tmux("set-option", "-g", "default-command", f"{shell} -l")
    started = tmp_path / "started"
    started.mkdir()
    async with open_panes(tmux.inside_env) as panes, asyncio.timeout(30):
        wanted = [
            make_pane_spec(
                f"m{number}", tmp_path, argv=("sh", "-c", f"echo $$ > {started}/{number}; exec cat")
            )
            for number in range(16)
        ]
        opened = await asyncio.gather(*map(panes.open_pane, wanted))
        assert len({*opened}) == 16
        await tmux.wait_until(lambda: len(list(started.iterdir())) == 16)
        pids = {int(path.read_text()) for path in started.iterdir()}
        assert pids == {panes.find_pane_pid(pane) for pane in opened}
        assert all([await panes.is_pane_alive(pane) for pane in opened])
        assert not used.exists()
        record_property("measured", f"{len(pids)} panes started, none through the slow shell")


@pytest.mark.spec("BCK-03", "USR-20")
async def test_more_than_six_panes_are_paged_and_the_lead_keeps_its_width(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    async with open_panes(tmux.inside_env) as panes:
        opened = [await panes.open_pane(make_pane_spec(f"m{number}", tmp_path)) for number in range(14)]
        names = tmux.list_panes("#{pane_id} #{window_name}")
        windows = [name.split(" ", 1)[1] for name in names]
        assert [windows.count(name) for name in ("shoal 2", "shoal 3")] == [6, 2]
        beside = [row for row in tmux.list_panes("#{pane_id} #{window_index}") if row.endswith(" 0")]
        assert len(beside) == 7
        assert int(tmux("display-message", "-p", "-t", lead, "#{pane_width}")) >= 100
        # A place that becomes free is used first.
        await panes.close_pane(opened[2])
        again = await panes.open_pane(make_pane_spec("again", tmp_path))
        assert tmux("display-message", "-p", "-t", again, "#{window_index}") == "0"
        assert int(tmux("display-message", "-p", "-t", lead, "#{pane_width}")) >= 100
        own = await panes.open_pane(make_pane_spec("alone", tmp_path, split=False))
        assert tmux("display-message", "-p", "-t", own, "#{window_name} #{window_panes}") == "alone 1"
    assert tmux.list_panes("#{pane_id}") == [lead]


async def test_a_low_window_has_fewer_panes_next_to_the_lead(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.start_user_session(columns=80, rows=24)
    async with open_panes(tmux.inside_env) as panes:
        for number in range(6):
            await panes.open_pane(make_pane_spec(f"m{number}", tmp_path))
        beside = [row for row in tmux.list_panes("#{window_index} #{pane_height}") if row.startswith("0 ")]
        assert len(beside) == 5
        assert min(int(row.split()[1]) for row in beside) >= 4


@pytest.mark.spec("BCK-03")
async def test_a_pane_has_its_title_and_colour_and_the_window_options_are_restored(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    tmux.start_user_session(columns=100, rows=30)
    inside = tmux.inside_env
    tmux("set-option", "-w", "-t", "person:0", "pane-border-format", "mine")
    before = tmux("show-options", "-w", "-t", "person:0")
    # A person looks at it with a real client, in a terminal whose cells can be read.
    client = ("env", "-u", "TMUX", "tmux", "-L", tmux.name, "attach", "-t", "person")
    tmux("new-session", "-d", "-s", "terminal", "-x", "100", "-y", "30", *client)
    async with open_panes(inside) as panes:
        first = await panes.open_pane(make_pane_spec("alice #1", tmp_path, color="orange"))
        await panes.open_pane(make_pane_spec("bob", tmp_path, color="blue"))
        assert tmux("display-message", "-p", "-t", first, "#{pane_title}") == "alice #1"
        await tmux.wait_for_text("terminal:0", " bob ")
        drawn = tmux("capture-pane", "-p", "-e", "-t", "terminal:0")
        # \x0f: lines are drawn with another character set where the locale is not UTF-8.
        assert re.search(r"\x1b\[1m\x1b\[38;5;208m\x0f? alice #1 ", drawn), repr(drawn)
        assert re.search(r"\x1b\[1m\x1b\[34m\x0f? bob ", drawn), repr(drawn)
    assert tmux("show-options", "-w", "-t", "person:0") == before


async def test_panes_of_the_user_stay_in_place(tmux: TmuxServer, tmp_path: Path) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    editor = tmux(
        "split-window", "-d", "-h", "-b", "-l", "60", "-t", lead, "-P", "-F", "#{pane_id}", "cat", "-"
    )
    width = int(tmux("display-message", "-p", "-t", lead, "#{pane_width}"))
    async with open_panes({**tmux.inside_env, "TMUX_PANE": lead}) as panes:
        opened = [await panes.open_pane(make_pane_spec(f"m{number}", tmp_path)) for number in range(3)]
        assert tmux("display-message", "-p", "-t", editor, "#{pane_left} #{pane_width}") == "0 60"
        assert int(tmux("display-message", "-p", "-t", lead, "#{pane_width}")) >= width // 2
        heights = [int(tmux("display-message", "-p", "-t", pane, "#{pane_height}")) for pane in opened]
        assert max(heights) - min(heights) <= 3
    assert tmux.list_panes("#{pane_id}") == [editor, lead]
    assert tmux("display-message", "-p", "-t", lead, "#{pane_width}") == str(width)


async def test_a_zoomed_lead_stays_zoomed_and_the_layout_is_updated_later(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    async with open_panes(tmux.inside_env) as panes:
        await panes.open_pane(make_pane_spec("m0", tmp_path))
        tmux("resize-pane", "-Z", "-t", lead)
        for number in range(1, 4):
            await panes.open_pane(make_pane_spec(f"m{number}", tmp_path))
        assert tmux("display-message", "-p", "-t", lead, "#{window_zoomed_flag} #{pane_width}") == "1 200"
        tmux("resize-pane", "-Z", "-t", lead)

        def even() -> bool:
            heights = [int(row) for row in tmux.list_panes("#{pane_height}")[1:]]
            return max(heights) - min(heights) <= 3

        await tmux.wait_until(even, "an even layout")
        assert int(tmux("display-message", "-p", "-t", lead, "#{pane_width}")) >= 100


@pytest.mark.spec("USR-20")
async def test_the_exit_of_a_pane_is_reported_and_the_layout_is_updated(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    tmux.start_user_session()
    async with open_panes(tmux.inside_env) as panes:
        ends = tmp_path / "ends"
        os.mkfifo(ends)
        first = await panes.open_pane(
            make_pane_spec("m1", tmp_path, argv=("sh", "-c", f"exit $(cat {ends})"))
        )
        second = await panes.open_pane(make_pane_spec("m2", tmp_path))
        third = await panes.open_pane(make_pane_spec("m3", tmp_path))
        fourth = await panes.open_pane(make_pane_spec("m4", tmp_path))
        waiting = asyncio.create_task(wait_for_pane_exit(panes, first))
        await asyncio.to_thread(ends.write_text, "7")
        assert await waiting == PaneExit(status=7)
        tmux("kill-pane", "-t", second)
        assert await wait_for_pane_exit(panes, second) == PaneExit()
        os.kill(panes.find_pane_pid(third), signal.SIGKILL)
        assert (await wait_for_pane_exit(panes, third)).status == -9
        assert [await panes.is_pane_alive(pane) for pane in (first, second, third, fourth)] == [
            False,
            False,
            False,
            True,
        ]
        await panes.close_pane(second)
        await tmux.wait_until(
            lambda: tmux.list_panes("#{pane_height}")[1:] == [tmux.list_panes("#{pane_height}")[0]]
        )
        assert tmux("show-options", "-s").count("@shoal_end") == 0


@pytest.mark.spec("USR-20")
async def test_only_own_panes_are_closed(tmux: TmuxServer, tmp_path: Path) -> None:
    """A server that was started again gives the same numbers to panes of the user."""
    tmux.start_user_session()
    inside = tmux.inside_env
    async with open_panes(inside) as panes, open_panes(inside) as others:
        mine = await panes.open_pane(make_pane_spec("mine", tmp_path))
        theirs = await others.open_pane(make_pane_spec("theirs", tmp_path))
        await panes.close_pane(theirs)
        assert await others.is_pane_alive(theirs)
        await tmux.kill_and_wait()
        tmux.start_user_session()
        assert tmux("split-window", "-d", "-P", "-F", "#{pane_id}", "cat", "-") == mine
        assert not await panes.is_pane_alive(mine)
        await panes.close_pane(mine)
        await panes.aclose()
        await others.aclose()
        assert mine in tmux.list_panes("#{pane_id}")


async def test_a_detached_control_client_reconnects(tmux: TmuxServer, tmp_path: Path) -> None:
    """`tmux attach -d` detaches every other client, including the control client."""
    tmux.start_user_session()
    async with open_panes(tmux.inside_env) as panes:
        pane = await panes.open_pane(make_pane_spec("m1", tmp_path))
        waiting = asyncio.create_task(wait_for_pane_exit(panes, pane))
        tmux("detach-client", "-s", "person")
        await tmux.wait_until(
            lambda: "no-output" in tmux("list-clients", "-F", "#{client_flags}"), "a new client"
        )
        assert not waiting.done()
        tmux("kill-pane", "-t", pane)
        assert await waiting == PaneExit()


@pytest.mark.spec("BCK-03")
async def test_outside_tmux_panes_open_in_a_separate_session(tmux: TmuxServer, tmp_path: Path) -> None:
    async with open_panes(tmux.outside_env, session_name="shoal-0a1b2c3d", socket=tmux.name) as panes:
        assert await panes.explain_unavailable() == ""
        assert panes.attach_command == ("tmux", "-L", tmux.name, "attach", "-t", "shoal-0a1b2c3d")
        opened = [await panes.open_pane(make_pane_spec(f"m{number}", tmp_path)) for number in range(7)]
        windows = tmux.list_panes("#{session_name} #{window_name}")
        assert [windows.count(f"shoal-0a1b2c3d {name}") for name in ("shoal", "shoal 2")] == [6, 1]
        for number, pane in enumerate(opened):
            await tmux.wait_for_text(pane, f"m{number}")
        for pane in opened[:-1]:
            await panes.close_pane(pane)
        tmux("kill-pane", "-t", opened[-1])
        assert await wait_for_pane_exit(panes, opened[-1]) == PaneExit()
        # Where the session is gone with its last pane, the next one makes it anew.
        again = await panes.open_pane(make_pane_spec("again", tmp_path))
        await tmux.wait_for_text(again, "again")
    assert tmux("list-panes", "-a", check=False) == ""


@pytest.mark.spec("USR-29")
async def test_arguments_reach_the_program_unchanged(tmux: TmuxServer, tmp_path: Path) -> None:
    words = ("a b", "$HOME", "#{pane_id}", '"', "'", "\\", "~", ";", "new\nline", "é", "")
    out = tmp_path / "out"
    code = (
        "import os, sys; open(sys.argv[1], 'w').write(repr((sys.argv[2:], os.environ['SAID'], os.getcwd())))"
    )
    tmux.start_user_session()
    async with open_panes(tmux.inside_env) as panes:
        argv = (sys.executable, "-Xutf8", "-c", code, str(out), *words)
        said = "one\ntwo $X \t;"
        await panes.open_pane(PaneSpec(title="m", color=None, argv=argv, cwd=tmp_path, env={"SAID": said}))
        await tmux.wait_until(lambda: out.exists() and bool(out.read_text()))
    assert out.read_text() == repr(([*words], said, str(tmp_path)))


async def test_unavailable_tmux_is_explained_with_advice(tmux: TmuxServer, tmp_path: Path) -> None:
    tmux.start_user_session()
    async with open_panes({**tmux.inside_env, "PATH": str(tmp_path)}) as panes:
        assert await panes.explain_unavailable() == (
            "tmux is not installed. Install it, for example with: apt install tmux"
        )
        with pytest.raises(ProcessError):
            await panes.open_pane(make_pane_spec("m", tmp_path))
    old = tmp_path / "tmux"
    old.write_text("#!/bin/sh\necho tmux 2.9a\n")
    old.chmod(0o755)
    async with open_panes({**tmux.inside_env, "PATH": f"{tmp_path}:{os.environ['PATH']}"}) as panes:
        assert "tmux 2.9a is too old" in await panes.explain_unavailable()
    inside = tmux.inside_env
    async with open_panes(inside) as panes:
        assert await panes.explain_unavailable() == ""
        tmux("kill-server")
        assert "unset TMUX" in await panes.explain_unavailable()
        with pytest.raises(ProcessError, match="lead's pane"):
            await panes.open_pane(make_pane_spec("m", tmp_path))


@pytest.mark.spec("USR-20", "LIF-05")
@pytest.mark.parametrize(("locale", "with_guardian"), [("C.UTF-8", False), ("C", False), ("C", True)])
async def test_panes_close_when_the_lead_is_killed(
    tmux: TmuxServer, tmp_path: Path, locale: str, *, with_guardian: bool
) -> None:
    lead = tmux.start_user_session().inside_env["TMUX_PANE"]
    before = tmux("show-options", "-w", "-t", "person:0")
    code = """
import asyncio, os, sys
from pathlib import Path
from tmux_server import make_pane_spec, open_panes

async def main():
    async with open_panes(dict(os.environ)) as panes:
        for name in ("a", "b"):
            await panes.open_pane(
                make_pane_spec(name, Path.cwd(), argv=("sh", "-c", "trap '' HUP; exec sleep 600"))
            )
        print("open", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""
    env = {**tmux.inside_env, "PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": locale}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"open\n"
        pids = [int(pid) for pid in tmux.list_panes("#{pane_pid}")[1:]]
        assert len(pids) == 2
        if with_guardian:
            # Both die at the same moment: the lead must not notice the other's end first.
            process.send_signal(signal.SIGSTOP)
            (guardian,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(guardian), signal.SIGKILL)
        process.kill()
    await tmux.wait_until(lambda: tmux.list_panes("#{pane_id}") == [lead], "the end of the panes")
    await tmux.wait_until(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of what ran there"
    )
    await tmux.wait_until(
        lambda: tmux("show-options", "-w", "-t", "person:0") == before, "the window as it was"
    )


DIES_EARLY = """
import asyncio, os, signal
from pathlib import Path
from shoal.backends.tmux_control import TmuxControlClient
from tmux_server import make_pane_spec, open_panes

async def killed(*_, **__):
    print("made", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    TmuxControlClient.start = killed
    async with open_panes(dict(os.environ), socket="test") as panes:
        await panes.open_pane(make_pane_spec("a", Path.cwd()))

asyncio.run(main())
"""


@pytest.mark.spec("USR-23")
async def test_a_new_session_is_removed_when_the_lead_is_killed_before_its_first_pane(
    tmux: TmuxServer, tmp_path: Path
) -> None:
    tmux.start_user_session()
    env = {**tmux.outside_env, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", DIES_EARLY], env=env, cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"made\n"
    assert process.returncode == -signal.SIGKILL
    async with asyncio.timeout(30):
        await tmux.wait_until(
            lambda: tmux.list_panes("#{session_name}") == ["person"], "the end of its session"
        )


async def test_a_new_session_is_removed_when_no_pane_could_open(
    tmux: TmuxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse_start(*_: object, **__: object) -> object:
        raise ProcessError("no process can be started")

    tmux.start_user_session()
    monkeypatch.setattr("shoal.backends.tmux_control.TmuxControlClient.start", refuse_start)
    async with open_panes(tmux.outside_env, socket="test") as panes:
        with pytest.raises(ProcessError):
            await panes.open_pane(make_pane_spec("a", tmp_path))
    assert tmux.list_panes("#{session_name}") == ["person"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["beside the lead", "in a session of its own"])
async def test_a_cancelled_open_leaves_no_pane(
    tmux: TmuxServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The cancellation may come during any tmux command."""
    inside = tmux.start_user_session().inside_env
    before = tmux.list_panes("#{pane_id}")
    send = TmuxControlClient.send_command
    opening: asyncio.Task[str] | None = None
    left = 0

    def send_and_cancel(control: TmuxControlClient, words: Sequence[str], hear: Any = None) -> None:
        nonlocal left
        send(control, words, hear)
        left -= 1
        if left == 0 and opening is not None:
            opening.cancel()

    monkeypatch.setattr(TmuxControlClient, "send_command", send_and_cancel)
    interrupted = 0
    while True:
        environ, socket = (inside, None) if where == "beside the lead" else (tmux.outside_env, tmux.name)
        async with asyncio.timeout(30), open_panes(environ, socket=socket) as panes:
            left = interrupted + 1
            opening = asyncio.create_task(panes.open_pane(make_pane_spec("ann", tmp_path)))
            await asyncio.wait([opening])
            if not opening.cancelled():
                break
            interrupted += 1
            await tmux.wait_until(lambda: tmux.list_panes("#{pane_id}") == before, "the end of the pane")
    assert interrupted > 6
    assert tmux.list_panes("#{pane_id}") == before
