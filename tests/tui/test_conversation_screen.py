"""A prompt, a streamed answer, and foldable tool calls on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_scripts import call_tool
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.tui.block_widgets import ToolCallWidget
from shoal.testing import FakeClock
from tui_driver import drive_tui
from tui_snapshots import assert_matches_snapshot

SNAPSHOTS = Path(__file__).parent / "snapshots"
ANSWER = """# What I changed

`greet` now **returns** its words, so that:

- callers decide what becomes of them
- a test can look at them

```python
def greet(name: str) -> str:
    return f"hello {name}"
```

| file | lines |
|---|---|
| greet.py | 2 |
"""


def script_greeting_edit(project: Path) -> ScriptedModel:
    path = str(project / "greet.py")
    change = {"old_string": '    print("hello " + name)', "new_string": '    return f"hello {name}"'}
    return ScriptedModel(
        [
            [call_tool("Read", "call-1", file_path=path)],
            [call_tool("Edit", "call-2", file_path=path, **change)],
            [call_tool("Read", "call-3", file_path=str(project / "there" / "is" / "none.py"))],
            ANSWER,
        ]
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (path / "greet.py").write_text('def greet(name):\n    print("hello " + name)\n')
    return path


@pytest.mark.slow
@pytest.mark.spec("USR-18", "SRF-01")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_prompt_its_calls_and_its_answer_match_the_snapshot(
    tmp_path: Path, project: Path, size: tuple[int, int]
) -> None:
    async with drive_tui(tmp_path, script_greeting_edit(project), size=size, clock=FakeClock()) as at:
        await at.submit_text("let greet return its words")
        await at.wait_for_text("greet.py │ 2")
        await at.wait_until_idle()
        assert_matches_snapshot(at.app, SNAPSHOTS / f"answer-{size[0]}x{size[1]}.svg")


@pytest.mark.slow
async def test_an_unfolded_call_shows_its_whole_input_and_output(tmp_path: Path, project: Path) -> None:
    async with drive_tui(tmp_path, script_greeting_edit(project), size=(80, 60)) as at:
        await at.submit_text("let greet return its words")
        await at.wait_for_text("What I changed")
        await at.wait_until_idle()
        read, edit, failed = at.app.query(ToolCallWidget)
        assert "▸ ✓ Read greet.py  2 lines" in at.screen_text
        assert "▸ ✗ Read there/is/none.py" in at.screen_text
        assert '-    print("hello " + name)' in at.screen_text, "a difference is seen without unfolding"
        assert '+    return f"hello {name}"' in at.screen_text
        assert "@@" not in at.screen_text
        await at.press_keys("ctrl+o")
        assert all(call.is_unfolded for call in (read, edit, failed))
        await at.wait_for_text("▾ ✓ Read greet.py", "file_path:", "@@ -1,1 +1,1 @@")
        await at.press_keys("ctrl+o")
        await at.wait_until(lambda: "@@" not in at.screen_text)
        await at.pilot.click(edit)
        await at.wait_for_text("@@ -1,1 +1,1 @@")
        assert not read.is_unfolded


async def test_text_is_shown_while_it_streams(tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(200))
    async with drive_tui(tmp_path, ScriptedModel([text], pace=0.02)) as at:
        await at.submit_text("talk")
        await at.wait_for_text("word3")
        assert at.client.is_busy
        assert "word199" not in at.screen_text
        await at.press_keys("escape")
        await at.wait_for_text("interrupted")
        await at.wait_until_idle()


@pytest.mark.slow
async def test_the_answer_after_an_interrupted_one_is_below_its_own_prompt(tmp_path: Path) -> None:
    clock = FakeClock()
    model = ScriptedModel([" ".join(["early"] * 40), "late words"], clock=clock, pace=1.0)
    async with drive_tui(tmp_path, model, size=(80, 40)) as at:
        await at.submit_text("first")
        while "early early" not in at.screen_text:
            await clock.advance(1)
            await at.pilot.pause(0.02)
        for number in range(5):
            await at.submit_text(f"meanwhile {number}")
            await at.wait_for_text(f"running calls: meanwhile {number}")
        await clock.advance(2)
        await at.press_keys("escape")
        await at.wait_for_text("interrupted")
        await at.wait_until(lambda: at.app.composer.text, "what was not heard")
        await at.press_keys("ctrl+c")
        await at.submit_text("second")
        while "late words" not in at.screen_text:
            await clock.advance(1)
            await at.pilot.pause(0.02)
        before, _, after = at.screen_text.partition("› second")
        assert "early early" in before
        assert "early" not in after
        assert "late words" in after


@pytest.mark.slow
async def test_a_resumed_session_shows_the_earlier_conversation(tmp_path: Path, project: Path) -> None:
    async with drive_tui(tmp_path, script_greeting_edit(project)) as at:
        await at.submit_text("let greet return its words")
        await at.wait_for_text("What I changed")
        await at.wait_until_idle()
        session = at.session.id
    async with drive_tui(tmp_path, ScriptedModel(["So it is."]), size=(80, 60), resume=str(session)) as at:
        await at.wait_for_text("› let greet return its words", "✓ Edit greet.py", "What I changed")
        await at.submit_text("good")
        await at.wait_for_text("› good", "So it is.")
        assert at.screen_text.count("What I changed") == 1


async def test_terminal_codes_in_an_answer_are_removed(tmp_path: Path) -> None:
    async with drive_tui(
        tmp_path, ScriptedModel(["red \x1b[31mink\x1b[0m [bold]and[/bold] \x07 a bell"])
    ) as at:
        await at.submit_text("paint")
        await at.wait_for_text("red ink [bold]and[/bold]")
        assert "\x1b" not in at.screen_text


@pytest.mark.parametrize(
    ("setting", "colorfgbg", "theme"),
    [
        (None, "", "textual-dark"),
        (None, "15;0", "textual-dark"),
        (None, "0;15", "textual-light"),
        (None, "0;default;7", "textual-light"),
        ("dark", "0;15", "textual-dark"),
        ("ansi", "", "ansi-dark"),
    ],
)
async def test_the_theme_follows_the_setting_then_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, colorfgbg: str, theme: str
) -> None:
    monkeypatch.setenv("COLORFGBG", colorfgbg)
    settings = json.dumps({"shoal": {"theme": setting}} if setting else {})
    async with drive_tui(tmp_path, ScriptedModel(["yes"]), settings=settings) as at:
        assert at.app.theme == theme
