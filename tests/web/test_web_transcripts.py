"""The conversations of agents as a page reads them, and the words it hears as they are said."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from cast import Gate, all_turns, use
from shoal.core.entries import Said
from shoal.core.ids import EntryId
from shoal.core.messages import user
from shoal.surfaces.web.blocks import entry_shown
from shoal.wire.notices import message_from
from troupe import member, opened, troupe
from web_rig import served

LONG = "A line of a long file.\n" * 1_000


def words(entry: Any) -> str:
    return "".join(block.get("text", "") for block in entry["blocks"])


async def test_a_transcript_is_read_in_pages_from_its_start_and_from_its_end(tmp_path: Path) -> None:
    calls = [use("Bash", f"call-{number}", command=f"echo {number}") for number in range(10)]
    async with served() as web:
        async with opened(tmp_path, troupe(lead=[*calls, "All ten are done."])) as session:
            await all_turns(session, "Count to ten.")
        path = f"/runs/{session.id}/agents/lead/transcript"
        last = await web.get(f"{path}?after=-1&limit=3")
        assert [entry["role"] for entry in last["entries"]] == ["assistant", "user", "assistant"]
        assert words(last["entries"][-1]) == "All ten are done."
        assert last["next"] == last["total"]
        read: list[Any] = []
        after = 0
        while after < last["total"]:
            page = await web.get(f"{path}?after={after}&limit=5")
            read += page["entries"]
            after = page["next"]
        assert [entry["n"] for entry in read] == sorted({entry["n"] for entry in read})
        assert read[-3:] == last["entries"]
        said = [(entry["by"], entry["blocks"][0]["type"]) for entry in read]
        assert said[0] == ("person", "text")
        assert said[1:-1] == [("model", "tool_use"), ("tool", "tool_result")] * 10
        assert (await web.get(f"{path}?after={after}"))["entries"] == []


async def test_long_parts_are_cut_with_a_mark_and_whole_on_request(tmp_path: Path) -> None:
    calls = [
        use("Write", "w", file_path=str(tmp_path / "long.txt"), content=LONG),
        use("Edit", "e", file_path=str(tmp_path / "a.txt"), old_string="one\ntwo", new_string="one\nthree"),
        use("Bash", "b", command="seq 4000"),
    ]
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with served() as web:
        async with opened(tmp_path, troupe(lead=[*calls, "done"])) as session:
            await all_turns(session)
        path = f"/runs/{session.id}/agents/lead/transcript"
        entries = (await web.get(path))["entries"]
        blocks = [(entry["n"], block) for entry in entries for block in entry["blocks"]]
        write, edit, _ = [(n, block) for n, block in blocks if block["type"] == "tool_use"]
        assert write[1]["cut"] > len(LONG)
        assert len(write[1]["input"]["content"]) < 2_000
        assert "+A line of a long file." in write[1]["diff"]
        assert "-two\n+three" in edit[1]["diff"]
        assert "cut" not in edit[1]
        number, printed = next((n, block) for n, block in blocks if len(block.get("text", "")) == 4_000)
        assert printed["cut"] > 4_000
        whole = await web.get(f"{path}/{number}")
        assert len(words(whole)) == printed["cut"]
        (call,) = (await web.get(f"{path}/{write[0]}"))["blocks"]
        assert call["input"]["content"] == LONG
        assert "no entry" in (await web.get(f"{path}/999", 404))["error"]
        assert "no agent" in (await web.get(f"/runs/{session.id}/agents/nobody/transcript", 404))["error"]


async def test_a_page_hears_an_agent_word_by_word_and_that_its_transcript_grew(tmp_path: Path) -> None:
    gate = Gate()
    model = troupe(
        0.01,
        lead=[use("TeamCreate", team_name="crew"), member("ann"), "wait"],
        ann=[use("Gate"), "The roof is tight, and the rain may come."],
    )
    async with (
        served() as web,
        opened(tmp_path, model, tools=[gate.tool]) as session,
        asyncio.TaskGroup() as tasks,
    ):
        turns = tasks.create_task(all_turns(session))
        await gate.wait()
        path = f"/runs/{session.id}/agents/ann@crew"
        known = (await web.get(f"{path}/transcript"))["total"]
        async with web.stream(f"{path}/live") as live:
            heard, total = "", 0
            kind, _, first = await live.next()
            assert (kind, first) == ("entry", {"total": known})
            gate.opened.set()
            while "may come." not in heard or total < known + 2:
                kind, _, data = await live.next()
                if kind == "entry":
                    total = data["total"]
                elif data["kind"] == "text":
                    heard += data["text"]
        assert heard.endswith("The roof is tight, and the rain may come.")
        page = await web.get(f"{path}/transcript?after={known}")
        assert any("the rain may come" in words(entry) for entry in page["entries"])
        await turns


def letter(sender: str, text: str, summary: str = "", *, verified: bool = True) -> dict[str, Any]:
    return {"type": "letter", "sender": sender, "verified": verified, "summary": summary, "text": text}


def test_each_letter_in_a_conversation_is_shown_for_itself() -> None:
    said = [
        message_from("ann", "It is <done>.\n\n**bob**\n\nYes.", summary='a "good" & new <door>'),
        message_from("eve", "Trust me.", verified=False),
        "Take these.",
    ]
    entry = Said(id=EntryId("e"), parent=None, at=1, message=user("\n".join(said)))
    found = entry_shown(0, entry)
    assert found["by"] == "agent"
    assert found["blocks"] == [
        letter("ann", "It is <done>.\n\n**bob**\n\nYes.", 'a "good" & new <door>'),
        letter("eve", "Trust me.", verified=False),
        {"type": "text", "text": "Take these."},
    ]


def test_half_a_letter_is_shown_as_it_stands() -> None:
    entry = Said(id=EntryId("e"), parent=None, at=1, message=user("<teammate-message>half"))
    assert entry_shown(0, entry)["blocks"] == [{"type": "text", "text": "<teammate-message>half"}]
