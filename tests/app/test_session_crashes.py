"""Sessions killed with -9 at any point, and disks that are full."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from app_session_helpers import run_prompt

import shoal
from agent_scripts import ToolGate, call_tool
from session_helpers import find_tool_results, open_session
from shoal.core.conversation.messages import Base64ImageSource, ImageBlock, Message, ToolResultBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.ids import SessionId
from shoal.models.scripted_model import ScriptedModel
from shoal.stores.files.home.home_paths import get_transcript_path
from shoal.stores.files.sessions.session_files import read_session_transcript
from shoal.stores.files.sessions.usage_summary import summarize_journal_usage

ENDLESS = """
    import asyncio, os, sys, shoal
    from shoal.core.conversation.messages import ToolUseBlock

    class Mind:
        n = 0
        def __call__(self, request):
            self.n += 1
            name = f"{os.getpid()}-{self.n}.txt"
            return [
                f"step {self.n} " + "x" * 2000,
                ToolUseBlock(id=f"a{name}", name="Glob", input={"pattern": "*"}),
                ToolUseBlock(id=f"b{name}", name="Write", input={"file_path": name, "content": "y" * 9}),
            ]

    async def main():
        async with shoal.open(cwd=sys.argv[1], model=shoal.ScriptedModel(Mind()), skip_permissions=True,
                              resume=sys.argv[2] or None) as session:
            print(session.id, flush=True)
            async for event in session.run("work for ever"):
                pass

    asyncio.run(main())
"""


async def kill_after_growth(project: Path, size: int, resume: str) -> Path:
    """Kill a session after its transcript has grown by `size` bytes; return the transcript's path."""
    command = [sys.executable, "-c", textwrap.dedent(ENDLESS), str(project), resume]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            session = SessionId(child.stdout.readline().strip())
            path = get_transcript_path(Path(os.environ["SHOAL_HOME"]), str(project), session)
            target = size + (path.stat().st_size if path.exists() else 0)
            async with asyncio.timeout(20):
                while not path.exists() or path.stat().st_size < target:
                    await asyncio.sleep(0)
        finally:
            child.kill()
    return path


def run_script(script: str, project: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), str(project)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def find_open_calls(messages: list[Message]) -> set[str]:
    made = {c.id for m in messages for c in m.tool_uses}
    answered = {b.tool_use_id for m in messages for b in m.content if isinstance(b, ToolResultBlock)}
    return made - answered


@pytest.mark.slow
@pytest.mark.spec("TRN-01", "TRN-02")
async def test_a_session_killed_at_any_point_resumes_from_its_last_complete_line(tmp_path: Path) -> None:
    rng = random.Random(5)
    session_id = ""
    lines: list[int] = []
    for _ in range(6):
        path = await kill_after_growth(tmp_path, rng.randrange(1, 200_000), session_id)
        session_id = path.stem
        loaded = read_session_transcript(path)
        lines.append(path.read_bytes().count(b"\n"))
        left = find_open_calls(list(loaded.messages))
        answered = loaded.interrupted.content if loaded.interrupted else ()
        assert left == {b.tool_use_id for b in answered if isinstance(b, ToolResultBlock)}
    assert lines == sorted(lines)
    assert lines[0] > 0

    def choose_reply(request: ModelRequest) -> str:
        assert not find_open_calls(list(request.messages))
        return "whole"

    async with shoal.open(cwd=tmp_path, model=ScriptedModel(choose_reply), resume=session_id) as session:
        last: Any = None
        async for event in session.run("still there?"):
            last = event
    assert last.text == "whole"


@pytest.mark.spec("USR-19")
async def test_a_request_cut_by_a_crash_is_listed_as_unsettled(tmp_path: Path) -> None:
    script = """
        import asyncio, os, sys, shoal
        from shoal.core.conversation.model_requests import ModelAttemptStartedDelta
        from shoal.core.conversation.messages import Message, TextBlock
        from shoal.core.conversation.model_requests import ModelReply
        from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage

        class Model:
            card = ModelCard(id="m", provider="x", price=TokenPrice(input=1, output=1))
            n = 0
            async def generate_reply(self, request, on_delta):
                await on_delta(ModelAttemptStartedDelta())
                self.n += 1
                if self.n == 3:
                    os.kill(os.getpid(), 9)
                return ModelReply(message=Message(role="assistant", content=(TextBlock(text="hi"),)),
                             usage=Usage(input_tokens=10, output_tokens=5), stop_reason="end_turn", model="m")
            async def aclose(self): ...

        async def main():
            async with shoal.open(cwd=sys.argv[1], model=Model()) as session:
                print(session.id, flush=True)
                for n in range(3):
                    async for event in session.run(f"prompt {n}"):
                        pass

        asyncio.run(main())
    """
    child = run_script(script, tmp_path)
    assert child.returncode == -9
    journal = Path(os.environ["SHOAL_HOME"]) / "shoal" / "runs" / child.stdout.strip() / "journal.jsonl"
    sums = summarize_journal_usage(journal)
    assert sums.total.usage.input_tokens == 20
    assert sums.total.usage.output_tokens == 10
    assert len(sums.unsettled) == 1


PASTE_AND_DIE = """
    import asyncio, os, sys, shoal
    from shoal.core.conversation.messages import Base64ImageSource, ImageBlock, Message, TextBlock
    from shoal.core.conversation.messages import ToolUseBlock

    async def paste() -> str:
        "Paste an image into the running turn, then die."
        image = ImageBlock(source=Base64ImageSource(media_type="image/png", data="AAAA" * 4000))
        session.steer(Message(role="user", content=(TextBlock(text="what is this?"), image)))
        os.kill(os.getpid(), 9)

    async def main():
        global session
        model = shoal.ScriptedModel([ToolUseBlock(id="c1", name="paste", input={})])
        async with shoal.open(cwd=sys.argv[1], model=model, tools=[shoal.tool(paste)],
                              skip_permissions=True) as session:
            print(session.id, flush=True)
            async for event in session.run("work"):
                pass

    asyncio.run(main())
"""


async def resume_and_list_images(project: Path, session: str) -> tuple[str, list[ImageBlock]]:
    """Resume the session; return the text and the images of the items that waited for the lead."""
    received: list[Message] = []

    def choose_reply(request: ModelRequest) -> str:
        received.extend(request.messages)
        return "seen"

    async with shoal.open(cwd=project, model=ScriptedModel(choose_reply), resume=session) as resumed:
        await resumed.run("go on")
    images = [block for each in received for block in each.content if isinstance(block, ImageBlock)]
    return "\n".join(each.text for each in received), images


@pytest.mark.spec("QUE-03")
async def test_an_image_pasted_during_a_turn_survives_a_kill(tmp_path: Path) -> None:
    child = run_script(PASTE_AND_DIE, tmp_path)
    assert child.returncode == -9, child.stderr
    text, images = await resume_and_list_images(tmp_path, child.stdout.strip())
    assert text.count("what is this?") == 1
    assert [image.source.data for image in images if isinstance(image.source, Base64ImageSource)] == [
        "AAAA" * 4000
    ]


@pytest.mark.spec("QUE-03")
@pytest.mark.parametrize("damage", [b"", b"{}", b'[{"type": "image"}]', b"\xff", None])
async def test_a_pasted_image_whose_file_is_damaged_is_said_to_be_lost(
    tmp_path: Path, damage: bytes | None
) -> None:
    child = run_script(PASTE_AND_DIE, tmp_path)
    (file,) = Path(os.environ["SHOAL_HOME"]).rglob("queued-*.json")
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(damage)
    text, images = await resume_and_list_images(tmp_path, child.stdout.strip())
    assert not images
    assert "what is this?" in text
    assert "of this message" in text
    assert str(file) in text


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
    """Replace a full disk: a write beyond the size fails the same way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_a_full_disk_ends_the_turn_with_an_error_and_loses_nothing(tmp_path: Path) -> None:
    gate = ToolGate()
    model = shoal.ScriptedModel(["a" * 2000, "b" * 50000, call_tool("Gate"), "c"])
    async with asyncio.timeout(60), open_session(tmp_path, model, tools=[gate.tool]) as session:
        await run_prompt(session, "one")
        with limit_file_size(20_000):
            ended = await run_prompt(session, "two")
        assert ended.reason == "store_error"
        assert "Cannot write" in ended.detail
        turn = asyncio.create_task(run_prompt(session, "three"))
        await gate.wait_until_reached()
        with limit_file_size(0):
            await session.interrupt()
        ended = await turn
        assert ended.reason == "store_error"
        assert ended.detail.startswith("interrupted by the user; Cannot write")
        assert (await run_prompt(session, "four")).reason == "done"
    (path,) = Path(os.environ["SHOAL_HOME"]).glob(f"projects/*/{session.id}.jsonl")
    messages = read_session_transcript(path).messages
    assert [m.text[:5] for m in messages if m.text] == ["one", "aaaaa", "two", "three", "four", "c"]
    assert len(find_tool_results(messages)) == 1
