"""A teammate's permission comes by mail when the process that asked for it is dead."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import troupe as troupe_module
from cast import all_turns, recorded, use
from foreign_mail import body, entry, notes, written
from shoal.core.requests import Request
from troupe import inbox, last_words, opened, troupe

OWN: dict[str, Any] = {
    "skip_permissions": False,
    "attended": True,
    "settings": json.dumps({"shoal": {"trust_unsigned_mail": "always", "teammate_mode": "in-process"}}),
}
ASKER = """
    import asyncio, sys
    from cast import use
    from troupe import member, opened, troupe

    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "waiting"],
        ann=[use("Write", "w1", file_path="a.txt", content="one")],
    )

    async def main():
        async with opened(sys.argv[1], model, skip_permissions=False, attended=True,
                          settings=sys.argv[2]) as session:
            async with asyncio.TaskGroup() as tasks:
                async def run():
                    async for _ in session.run("lead"):
                        pass
                tasks.create_task(run())
                async for question in session.parts.desk.incoming():
                    print(session.id, flush=True)

    asyncio.run(main())
"""


def killed(project: Path) -> tuple[str, str]:
    """The session of a process that was killed while its teammate asked, and the id of the request."""
    command = [sys.executable, "-c", textwrap.dedent(ASKER), str(project), OWN["settings"]]
    where = Path(troupe_module.__file__).parent
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=where) as child:
        try:
            assert child.stdout is not None
            session = child.stdout.readline().strip()
        finally:
            child.kill()
    (asked,) = [each for each in inbox("crew", "team-lead") if "perm-" in each["text"]]
    return session, json.loads(asked["text"])["request_id"]


@pytest.mark.spec("QUE-03", "QUE-06")
async def test_a_yes_by_mail_to_a_call_that_was_cut_off_is_told_and_the_call_is_not_asked_again(
    tmp_path: Path,
) -> None:
    session_id, request = killed(tmp_path)
    granted = {"request_id": request, "subtype": "success", "response": {}}
    await written("ann", entry("team-lead", body("permission_response", granted)))
    heard: list[str] = []

    def again(request: Request) -> Any:
        heard.append(last_words(request))
        assert not (tmp_path / "a.txt").exists(), "nothing runs by itself"
        return use("Write", "w2", file_path="a.txt", content="one")

    model = troupe(lead=["on"], ann=["unused", again, "done"])
    async with opened(tmp_path, model, resume=session_id, **OWN) as session, asyncio.timeout(30):
        await all_turns(session, "Go on.")
    assert '<permission-granted tool="Write" tool-use-id="w1">' in "\n".join(heard)
    assert (tmp_path / "a.txt").read_text() == "one"
    assert "came too late" not in notes(recorded(session))


@pytest.mark.parametrize("answer", ["no", "unknown"])
async def test_a_no_and_an_answer_to_what_was_never_asked_are_dropped_with_a_note(
    tmp_path: Path, answer: str
) -> None:
    session_id, request = killed(tmp_path)
    refused = {"request_id": request, "subtype": "error", "error": "not that"}
    unknown = {"request_id": "perm-1-abcdefg", "subtype": "success", "response": {}}
    given = refused if answer == "no" else unknown
    await written("ann", entry("team-lead", body("permission_response", given)))
    heard: list[str] = []

    def listen(request: Request) -> str:
        heard.append(last_words(request))
        return "heard"

    model = troupe(lead=["on"], ann=["unused", listen])
    async with opened(tmp_path, model, resume=session_id, **OWN) as session, asyncio.timeout(30):
        await all_turns(session, "Go on.")
    assert "<permission-granted" not in "\n".join(heard)
    assert f"An answer for ann came too late: {given['request_id']} is dropped." in notes(recorded(session))
