"""The conversations of agents as a page reads them, and the words it hears as they are said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_scripts import ToolGate, call_tool, run_all_turns
from shoal.core.conversation.messages import Message, TextBlock, user_message
from shoal.core.conversation.transcript_entries import TranscriptMessageEntry
from shoal.core.ids import EntryId
from shoal.surfaces.web.entry_blocks import render_transcript_entry
from shoal.wire.notification_text import format_mail_message
from team_scripts import open_session, script_team, spawn_member
from web_client import serve_home

LONG = "A line of a long file.\n" * 1_000


def join_texts(entry: Any) -> str:
    return "".join(block.get("text", "") for block in entry["blocks"])


async def test_a_transcript_is_read_in_pages_from_its_start_and_from_its_end(tmp_path: Path) -> None:
    calls = [call_tool("Bash", f"call-{number}", command=f"echo {number}") for number in range(10)]
    async with serve_home() as web:
        async with open_session(tmp_path, script_team(lead=[*calls, "All ten are done."])) as session:
            await run_all_turns(session, "Count to ten.")
        path = f"/runs/{session.id}/agents/lead/transcript"
        last = await web.get_json(f"{path}?after=-1&limit=3")
        assert [entry["role"] for entry in last["entries"]] == ["assistant", "user", "assistant"]
        assert join_texts(last["entries"][-1]) == "All ten are done."
        assert last["next"] == last["total"]
        read: list[Any] = []
        after = 0
        while after < last["total"]:
            page = await web.get_json(f"{path}?after={after}&limit=5")
            read += page["entries"]
            after = page["next"]
        assert [entry["n"] for entry in read] == sorted({entry["n"] for entry in read})
        assert read[-3:] == last["entries"]
        said = [(entry["by"], entry["blocks"][0]["type"]) for entry in read]
        assert said[0] == ("person", "text")
        assert said[1:-1] == [("model", "tool_use"), ("tool", "tool_result")] * 10
        assert (await web.get_json(f"{path}?after={after}"))["entries"] == []


async def test_long_parts_are_truncated_with_a_marker_and_complete_on_request(tmp_path: Path) -> None:
    calls = [
        call_tool("Write", "w", file_path=str(tmp_path / "long.txt"), content=LONG),
        call_tool(
            "Edit", "e", file_path=str(tmp_path / "a.txt"), old_string="one\ntwo", new_string="one\nthree"
        ),
        call_tool("Bash", "b", command="seq 4000"),
    ]
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with serve_home() as web:
        async with open_session(tmp_path, script_team(lead=[*calls, "done"])) as session:
            await run_all_turns(session)
        path = f"/runs/{session.id}/agents/lead/transcript"
        entries = (await web.get_json(path))["entries"]
        blocks = [(entry["n"], block) for entry in entries for block in entry["blocks"]]
        write, edit, _ = [(n, block) for n, block in blocks if block["type"] == "tool_use"]
        assert write[1]["cut"] > len(LONG)
        assert len(write[1]["input"]["content"]) < 2_000
        assert "+A line of a long file." in write[1]["diff"]
        assert "-two\n+three" in edit[1]["diff"]
        assert "cut" not in edit[1]
        number, printed = next((n, block) for n, block in blocks if len(block.get("text", "")) == 4_000)
        assert printed["cut"] > 4_000
        whole = await web.get_json(f"{path}/{number}")
        assert len(join_texts(whole)) == printed["cut"]
        (call,) = (await web.get_json(f"{path}/{write[0]}"))["blocks"]
        assert call["input"]["content"] == LONG
        assert "no entry" in (await web.get_json(f"{path}/999", 404))["error"]
        assert (
            "no agent" in (await web.get_json(f"/runs/{session.id}/agents/nobody/transcript", 404))["error"]
        )


async def test_a_page_gets_streamed_text_and_a_notice_when_the_transcript_grows(tmp_path: Path) -> None:
    gate = ToolGate()
    model = script_team(
        0.01,
        lead=[call_tool("TeamCreate", team_name="crew"), spawn_member("ann"), "wait"],
        ann=[call_tool("Gate"), "The roof is tight, and the rain may come."],
    )
    async with (
        serve_home() as web,
        open_session(tmp_path, model, tools=[gate.tool]) as session,
        asyncio.TaskGroup() as tasks,
    ):
        turns = tasks.create_task(run_all_turns(session))
        await gate.wait_until_reached()
        path = f"/runs/{session.id}/agents/ann@crew"
        known = (await web.get_json(f"{path}/transcript"))["total"]
        async with web.open_stream(f"{path}/live") as live:
            heard, total = "", 0
            kind, _, first = await live.read_event()
            assert (kind, first) == ("entry", {"total": known})
            gate.is_open.set()
            while "may come." not in heard or total < known + 2:
                kind, _, data = await live.read_event()
                if kind == "entry":
                    total = data["total"]
                elif data["kind"] == "text":
                    heard += data["text"]
        assert heard.endswith("The roof is tight, and the rain may come.")
        page = await web.get_json(f"{path}/transcript?after={known}")
        assert any("the rain may come" in join_texts(entry) for entry in page["entries"])
        await turns


def make_mail_block(sender: str, text: str, summary: str = "", *, verified: bool = True) -> dict[str, Any]:
    return {"type": "letter", "sender": sender, "verified": verified, "summary": summary, "text": text}


def test_each_mail_message_in_a_conversation_is_shown_separately() -> None:
    said = [
        format_mail_message("ann", "It is <done>.\n\n**bob**\n\nYes.", summary='a "good" & new <door>'),
        format_mail_message("eve", "Trust me.", verified=False),
        "Take these.",
    ]
    entry = TranscriptMessageEntry(id=EntryId("e"), parent=None, at=1, message=user_message("\n".join(said)))
    found = render_transcript_entry(0, entry)
    assert found["by"] == "agent"
    assert found["blocks"] == [
        make_mail_block("ann", "It is <done>.\n\n**bob**\n\nYes.", 'a "good" & new <door>'),
        make_mail_block("eve", "Trust me.", verified=False),
        {"type": "text", "text": "Take these."},
    ]


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["<command-name>/fix</command-name>\n<command-args>a <\\command-name></command-args>", "Fix it."],
         ["/fix a <command-name>", "Fix it."]),
        (["<command-message>fix is running</command-message>\n<command-name>/fix</command-name>"], ["/fix"]),
        (["<command-name>/cost</command-name>\n<local-command-stdout>1 <b>\n2</local-command-stdout>"],
         ["/cost", "1 <b>\n2"]),
        (["<local-command-stdout>done</local-command-stdout>"], ["done"]),
        (["See <command-name>/fix</command-name>"], ["See <command-name>/fix</command-name>"]),
        (["<local-command-stdout>cut"], ["<local-command-stdout>cut"]),
    ],
)  # fmt: skip
def test_a_slash_command_is_shown_as_it_was_typed(texts: list[str], shown: list[str]) -> None:
    message = Message(role="user", content=tuple(TextBlock(text=text) for text in texts))
    entry = TranscriptMessageEntry(id=EntryId("e"), parent=None, at=1, message=message)
    found = render_transcript_entry(0, entry)
    assert [block["text"] for block in found["blocks"]] == shown


def test_an_incomplete_mail_message_is_shown_as_plain_text() -> None:
    entry = TranscriptMessageEntry(
        id=EntryId("e"), parent=None, at=1, message=user_message("<teammate-message>half")
    )
    assert render_transcript_entry(0, entry)["blocks"] == [{"type": "text", "text": "<teammate-message>half"}]
