"""Permission answers that arrive by mail after the asking process died."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import team_scripts
from agent_scripts import call_tool, read_events, run_all_turns
from foreign_mail import encode_body, join_notes, make_entry, write_to_inbox
from shoal.core.conversation.model_requests import ModelRequest
from team_scripts import get_last_text, open_session, read_inbox, script_team

OWN: dict[str, Any] = {
    "skip_permissions": False,
    "attended": True,
    "settings": json.dumps({"shoal": {"trust_unsigned_mail": "always", "teammate_mode": "in-process"}}),
}
ASKER = """
    import asyncio, sys
    from agent_scripts import call_tool
    from team_scripts import open_session, script_team, spawn_member

    model = script_team(
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "waiting"],
        ann=[call_tool("Write", "w1", file_path="a.txt", content="one")],
    )

    async def main():
        async with open_session(sys.argv[1], model, skip_permissions=False, attended=True,
                                settings=sys.argv[2]) as session:
            async with asyncio.TaskGroup() as tasks:
                async def run():
                    async for _ in session.run("lead"):
                        pass
                tasks.create_task(run())
                async for question in session.runtime.question_broker.watch_questions():
                    print(session.id, flush=True)

    asyncio.run(main())
"""


def kill_asking_session(project: Path) -> tuple[str, str]:
    """Kill a session while its member asks; return the session id and the request id."""
    command = [sys.executable, "-c", textwrap.dedent(ASKER), str(project), OWN["settings"]]
    where = Path(team_scripts.__file__).parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=where) as child:
        try:
            assert child.stdout is not None
            session = child.stdout.readline().strip()
        finally:
            child.kill()
    (asked,) = [each for each in read_inbox("crew", "team-lead") if "perm-" in each["text"]]
    return session, json.loads(asked["text"])["request_id"]


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_late_grant_by_mail_reaches_the_member_and_its_call_needs_no_new_question(
    tmp_path: Path,
) -> None:
    session_id, request = kill_asking_session(tmp_path)
    granted = {"request_id": request, "subtype": "success", "response": {}}
    await write_to_inbox("ann", make_entry("team-lead", encode_body("permission_response", granted)))
    heard: list[str] = []

    def again(request: ModelRequest) -> Any:
        heard.append(get_last_text(request))
        assert not (tmp_path / "a.txt").exists(), "nothing runs by itself"
        return call_tool("Write", "w2", file_path="a.txt", content="one")

    model = script_team(lead=["on"], ann=["unused", again, "done"])
    async with open_session(tmp_path, model, resume=session_id, **OWN) as session, asyncio.timeout(30):
        await run_all_turns(session, "Go on.")
    assert '<permission-granted tool="Write" tool-use-id="w1">' in "\n".join(heard)
    assert (tmp_path / "a.txt").read_text() == "one"
    assert "arrived too late" not in join_notes(read_events(session))


@pytest.mark.parametrize("answer", ["no", "unknown"])
async def test_a_late_denial_or_an_unknown_answer_is_dropped_with_a_note(tmp_path: Path, answer: str) -> None:
    session_id, request = kill_asking_session(tmp_path)
    refused = {"request_id": request, "subtype": "error", "error": "not that"}
    unknown = {"request_id": "perm-1-abcdefg", "subtype": "success", "response": {}}
    given = refused if answer == "no" else unknown
    await write_to_inbox("ann", make_entry("team-lead", encode_body("permission_response", given)))
    heard: list[str] = []

    def listen(request: ModelRequest) -> str:
        heard.append(get_last_text(request))
        return "heard"

    model = script_team(lead=["on"], ann=["unused", listen])
    async with open_session(tmp_path, model, resume=session_id, **OWN) as session, asyncio.timeout(30):
        await run_all_turns(session, "Go on.")
    assert "<permission-granted" not in "\n".join(heard)
    assert f"An answer for ann arrived too late, so {given['request_id']} was dropped." in join_notes(
        read_events(session)
    )
