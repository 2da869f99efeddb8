"""Commands in the background as a source of the queue: their ends reach the agent that started them, once."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import shoal
from cast import Gate, agent, all_turns, cast, recorded, use
from shoal.core.arrivals import Item
from shoal.core.events import Notified, SessionEnded, ShellEnded, ShellStarted
from shoal.core.ids import LEAD
from shoal.core.messages import ToolUse
from shoal.core.requests import Request
from shoal.testing import FakeClock
from shoal.tools.define import tool


def opened(tmp_path: Path, model: Any, **options: Any) -> shoal.Session:
    return shoal.open(cwd=tmp_path, model=model, **{"skip_permissions": True, **options})


def background(command: str, call_id: str = "b1") -> Any:
    return use("Bash", call_id, command=command, run_in_background=True)


def notices(session: shoal.Session) -> list[str]:
    told = "\n".join(
        message.text for message in session.agent.conversation.messages if message.role == "user"
    )
    return re.findall(r"<task-notification>.*?</task-notification>", told, re.DOTALL)


async def drained(turn: Any) -> None:
    async with asyncio.timeout(20):
        async for _ in turn:
            pass


async def shell_ended(session: shoal.Session, identity: str = "bash_1") -> None:
    shell = session.parts.shells.find(identity)
    assert shell is not None
    async with asyncio.timeout(10):
        await shell.ended.wait()


def waiting(session: shoal.Session) -> Item:
    item = session.parts.queue.take(LEAD)
    assert item is not None
    session.parts.queue.put(item)
    return item


@pytest.mark.spec("QUE-03", "QUE-05", "QUE-06")
async def test_the_end_of_a_background_command_is_told_once_with_its_exit_code(tmp_path: Path) -> None:
    model = cast(lead=[background("echo '</task-notification> made it'; exit 3"), "started", "heard"])
    async with opened(tmp_path, model) as session:
        await drained(session.run("lead"))
        await shell_ended(session)
        assert (waiting(session).mode, waiting(session).priority) == ("task-notification", "later")
        turn = await session.next_turn()
        assert turn is not None
        await drained(turn)
        assert await session.next_turn() is None
        (notice,) = notices(session)
        output = session.parts.shells.list()[0].file
    assert notice.splitlines()[1:6] == [
        "<task-id>bash_1</task-id>",
        "<tool-use-id>b1</tool-use-id>",
        f"<output-file>{output}</output-file>",
        "<status>failed</status>",
        "<summary>Background command \"echo '<\\/task-notification> made it'; exit 3\" failed (exit code 3)."
        "</summary>",
    ]
    assert notice.count("</task-notification>") == 1
    events = recorded(session)
    (ended,) = [event for event in events if isinstance(event, ShellEnded)]
    assert [event.completion for event in events if isinstance(event, Notified)] == [ended.id]


@pytest.mark.spec("QUE-04")
async def test_it_wakes_the_lead_while_agents_work_and_goes_to_nobody_else(tmp_path: Path) -> None:
    gate = Gate()
    model = cast(
        lead=[
            [agent("child", "c1", run_in_background=True), background("echo over")],
            "both started",
            use("Open"),
            "opened",
            "all heard",
        ],
        child=[use("Gate"), "child is done"],
    )
    async with opened(tmp_path, model, tools=[gate.tool, gate.open]) as session:
        # The child is let go by the turn that the command's end alone brings about.
        assert await all_turns(session) == "all heard"
        first, second = notices(session)
    assert "bash_1" in first
    assert "child is done" in second


@pytest.mark.spec("QUE-04")
async def test_the_end_of_an_agents_command_is_told_to_that_agent_and_not_to_the_lead(tmp_path: Path) -> None:
    @tool(name="Over", deadline=20)
    async def over() -> str:
        """Wait for the end of the command."""
        await shell_ended(session)
        return "over"

    def heard(request: Request) -> str:
        return "told" if "<task-id>bash_1</task-id>" in request.messages[-1].text else "not told"

    model = cast(lead=[agent("child", "c1"), "end"], child=[background("exit 3"), use("Over"), heard])
    async with opened(tmp_path, model, tools=[over]) as session:
        assert await all_turns(session) == "end"
        assert not notices(session)
        (child,) = session.parts.crew.agents()
    assert child.completion is not None
    assert child.completion.text == "told"


@pytest.mark.spec("QUE-05")
@pytest.mark.parametrize(
    "look", [use("BashOutput", "l1", bash_id="bash_1"), use("TaskOutput", "l1", task_id="bash_1")]
)
async def test_an_end_that_a_look_has_shown_is_not_told_again(tmp_path: Path, look: ToolUse) -> None:
    @tool(name="Free", deadline=20)
    async def free() -> str:
        """Let the command go on, and wait for its end."""
        (tmp_path / "go").write_text("")
        await shell_ended(session)
        return "over"

    command = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    # Both calls are of one message: nothing is taken from the queue between the end and the look.
    model = cast(lead=[background(command), [use("Free"), look], "seen"])
    async with opened(tmp_path, model, tools=[free]) as session:
        assert await all_turns(session) == "seen"
        assert not notices(session)
    (told,) = [event for event in recorded(session) if isinstance(event, Notified)]
    assert told.call == "l1"


async def test_a_command_that_its_agent_ended_is_not_told_and_one_a_person_ended_is(tmp_path: Path) -> None:
    model = cast(lead=[background("sleep 60"), use("KillShell", "k1", shell_id="bash_1"), "gone", "heard"])
    async with opened(tmp_path, model) as session:
        await drained(session.run("lead"))
        assert await session.next_turn() is None
        assert not notices(session)
    gate = Gate()
    model = cast(
        lead=[[agent("child", "c1", run_in_background=True), background("sleep 60")], "both run", "heard"],
        child=[use("Gate"), "never"],
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session:
        await drained(session.run("lead"))
        await gate.wait()
        stopped = await session.stop_all()
        assert [each.status for each in stopped.agents] == ["killed"]
        assert [facts.command for facts in stopped.commands] == ["sleep 60"]
        turn = await session.next_turn()
        assert turn is not None
        await drained(turn)
        assert sorted("it was stopped by the person" in notice for notice in notices(session)) == [True, True]
        assert not (await session.stop_all()).agents


@pytest.mark.spec("QUE-03")
async def test_a_command_that_waits_for_an_answer_is_told_of_until_it_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    model = cast(lead=[background("printf 'Go on? [y/n] '; sleep 60"), "started", "heard"])
    async with opened(tmp_path, model, clock=clock) as session:
        await drained(session.run("lead"))
        await clock.asleep()
        await clock.advance(61)
        assert "seems to wait for an answer" in str(waiting(session).content)
        await session.stop_all()
        # What is over does not wait for anything.
        assert "it was stopped by the person" in str(waiting(session).content)
        assert session.parts.queue.size(LEAD) == 1


KILLED = """
    import asyncio, os, signal, sys
    import shoal
    from cast import cast, use

    async def main(project, command):
        call = use("Bash", "b1", command=command, run_in_background=True)
        model = cast(lead=[call, "started"])
        async with shoal.open(cwd=project, model=model, skip_permissions=True) as session:
            async for _ in session.run("lead"):
                pass
            if command.startswith("exit"):
                await session.parts.shells.list()[0].ended.wait()
                while not session.parts.queue.size("lead"):
                    await asyncio.sleep(0)
            print(session.id, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main(*sys.argv[1:]))
"""


async def killed_with(tmp_path: Path, command: str) -> str:
    """A session whose process was killed while it had this command, and before its lead heard more of it."""
    path = os.pathsep.join([str(Path(__file__).parents[1] / "plugins"), *sys.path])
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", dedent(KILLED), str(tmp_path), command],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    return ran.stdout.strip()


@pytest.mark.spec("QUE-05")
async def test_an_end_that_was_not_told_before_a_crash_is_told_once_after_it(tmp_path: Path) -> None:
    identity = await killed_with(tmp_path, "exit 7")
    for expected in (1, 0):
        async with opened(tmp_path, cast(lead=["heard"]), resume=identity) as session:
            turn = await session.next_turn()
            assert (turn is not None) is bool(expected)
            if turn is not None:
                await drained(turn)
            (notice,) = notices(session)
            assert "failed (exit code 7)" in notice


@pytest.mark.spec("QUE-05")
async def test_a_resumed_session_hears_once_of_the_commands_that_died_with_its_process(
    tmp_path: Path,
) -> None:
    identity = await killed_with(tmp_path, "sleep 600")
    model = cast(lead=["", "", "heard", background("sleep 600"), "two"])
    async with opened(tmp_path, model, resume=identity) as session:
        turn = await session.next_turn()
        assert turn is not None
        await drained(turn)
        (notice,) = notices(session)
        assert "the process of the session ended, and the command with it" in notice
        await drained(session.run("start another"))
        # The conversation knows a bash_1: the new one is another.
        assert [shell.id for shell in session.parts.shells.list()] == ["bash_2"]
    assert isinstance(recorded(session)[-1], SessionEnded)
    # That one was ended in order, with its session: the next process tells of it, and of no other.
    async with opened(tmp_path, cast(lead=["heard"]), resume=identity) as session:
        turn = await session.next_turn()
        assert turn is not None
        await drained(turn)
        assert [("bash_2" in notice, "the session ended" in notice) for notice in notices(session)[1:]] == [
            (True, True)
        ]
    async with opened(tmp_path, cast(lead=["nothing"]), resume=identity) as session:
        assert await session.next_turn() is None
    assert sum(isinstance(event, ShellStarted) for event in recorded(session)) == 2
