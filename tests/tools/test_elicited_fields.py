"""Fields that a server asks for: each has an answer of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sites import workbench

from shoal.core.clock import SystemClock
from shoal.core.mcp import Program, Server
from shoal.core.questions import Answer, Choose, Chosen, Question
from shoal.tools.mcp.host import Caller, Host, Tokens
from shoal.tools.mcp.life import ServerLife

pytestmark = pytest.mark.needs("mcp")


class Desk:
    """A person who answers each question with its number."""

    async def ask(self, question: Question) -> Answer:
        assert isinstance(question, Choose)
        answers = {choice.question: str(number) for number, choice in enumerate(question.choices)}
        return Chosen(answers=answers)


def no_tokens(name: str, url: str) -> Tokens:
    raise AssertionError


async def test_fields_with_the_same_words_have_answers_of_their_own(tmp_path: Path) -> None:
    import mcp_types as types

    from shoal.tools.mcp.elicitation import elicited

    same = {"type": "string", "title": "Date"}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"start": same, "end": same, "place": {"type": "string"}},
    }
    async with workbench(tmp_path) as bench, SystemClock().deadline(60) as deadline:
        bench.desk = Desk()  # type: ignore[assignment]
        host = Host(
            processes=bench.processes,
            clock=bench.clock,
            root=tmp_path,
            env={},
            logs=tmp_path,
            deadline=60,
            note=bench.notes.append,
            tokens=no_tokens,
        )
        server = Server(name="s", reach=Program(command="none"), origin="a test")
        life = ServerLife(server, host, lambda: None)
        asked = types.ElicitRequestFormParams(message="When?", requested_schema=schema)
        with life._calling(Caller(site=bench.site(), deadline=deadline, seconds=60, last=1e12)):
            result = await elicited(life, asked)
    assert result.content == {"start": "0", "end": "1", "place": "2"}
