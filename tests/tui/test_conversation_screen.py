"""A prompt, a streamed answer, and calls that fold, as they stand on the screen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cast import use
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.tui.blocks import CallBlock
from shoal.testing import FakeClock
from tui_rig import sitting
from tui_shots import assert_looks

SHOTS = Path(__file__).parent / "snapshots"
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


def greeting(project: Path) -> ScriptedModel:
    place = str(project / "greet.py")
    change = {"old_string": '    print("hello " + name)', "new_string": '    return f"hello {name}"'}
    return ScriptedModel(
        [
            [use("Read", "call-1", file_path=place)],
            [use("Edit", "call-2", file_path=place, **change)],
            [use("Read", "call-3", file_path=str(project / "there" / "is" / "none.py"))],
            ANSWER,
        ]
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "greet.py").write_text('def greet(name):\n    print("hello " + name)\n')
    return place


@pytest.mark.spec("USR-18", "SRF-01")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_prompt_its_calls_and_its_answer_stand_on_the_screen(
    tmp_path: Path, project: Path, size: tuple[int, int]
) -> None:
    async with sitting(tmp_path, greeting(project), size=size, clock=FakeClock()) as at:
        await at.say("let greet return its words")
        await at.shows("greet.py │ 2")
        await at.rests()
        assert_looks(at.app, SHOTS / f"answer-{size[0]}x{size[1]}.svg")


async def test_calls_unfold_to_all_they_were_given_and_gave(tmp_path: Path, project: Path) -> None:
    async with sitting(tmp_path, greeting(project), size=(80, 60)) as at:
        await at.say("let greet return its words")
        await at.shows("What I changed")
        await at.rests()
        read, edit, failed = at.app.query(CallBlock)
        assert "▸ ✓ Read greet.py  2 lines" in at.text
        assert "▸ ✗ Read there/is/none.py" in at.text
        assert '-    print("hello " + name)' in at.text, "a difference is seen without unfolding"
        assert '+    return f"hello {name}"' in at.text
        assert "@@" not in at.text
        await at.press("ctrl+o")
        assert all(call.unfolded for call in (read, edit, failed))
        await at.shows("▾ ✓ Read greet.py", "file_path:", "@@ -1,1 +1,1 @@")
        await at.press("ctrl+o")
        await at.until(lambda: "@@" not in at.text)
        await at.pilot.click(edit)
        await at.shows("@@ -1,1 +1,1 @@")
        assert not read.unfolded


async def test_words_are_on_the_screen_while_the_rest_is_still_being_said(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(200))
    async with sitting(tmp_path, ScriptedModel([words], pace=0.02)) as at:
        await at.say("talk")
        await at.shows("word3")
        assert at.seat.busy
        assert "word199" not in at.text
        await at.press("escape")
        await at.shows("interrupted")
        await at.rests()


async def test_the_answer_after_an_interrupted_one_stands_below_its_own_prompt(tmp_path: Path) -> None:
    clock = FakeClock()
    model = ScriptedModel([" ".join(["early"] * 40), "late words"], clock=clock, pace=1.0)
    async with sitting(tmp_path, model, size=(80, 40)) as at:
        await at.say("first")
        while "early early" not in at.text:
            await clock.advance(1)
            await at.pilot.pause(0.02)
        for number in range(5):
            await at.say(f"meanwhile {number}")
            await at.shows(f"running calls: meanwhile {number}")
        await clock.advance(2)
        await at.press("escape")
        await at.shows("interrupted")
        await at.until(lambda: at.app.composer.text, "what was not heard")
        await at.press("ctrl+c")
        await at.say("second")
        while "late words" not in at.text:
            await clock.advance(1)
            await at.pilot.pause(0.02)
        before, _, after = at.text.partition("› second")
        assert "early early" in before
        assert "early" not in after
        assert "late words" in after


async def test_a_resumed_session_shows_what_was_said_before(tmp_path: Path, project: Path) -> None:
    async with sitting(tmp_path, greeting(project)) as at:
        await at.say("let greet return its words")
        await at.shows("What I changed")
        await at.rests()
        session = at.session.id
    async with sitting(tmp_path, ScriptedModel(["So it is."]), size=(80, 60), resume=str(session)) as at:
        await at.shows("› let greet return its words", "✓ Edit greet.py", "What I changed")
        await at.say("good")
        await at.shows("› good", "So it is.")
        assert at.text.count("What I changed") == 1


async def test_nothing_a_model_says_commands_the_terminal(tmp_path: Path) -> None:
    async with sitting(
        tmp_path, ScriptedModel(["red \x1b[31mink\x1b[0m [bold]and[/bold] \x07 a bell"])
    ) as at:
        await at.say("paint")
        await at.shows("red ink [bold]and[/bold]")
        assert "\x1b" not in at.text


@pytest.mark.parametrize(
    ("setting", "told", "theme"),
    [
        (None, "", "textual-dark"),
        (None, "15;0", "textual-dark"),
        (None, "0;15", "textual-light"),
        (None, "0;default;7", "textual-light"),
        ("dark", "0;15", "textual-dark"),
        ("ansi", "", "ansi-dark"),
    ],
)
async def test_the_screen_is_light_where_the_terminal_or_a_setting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, told: str, theme: str
) -> None:
    monkeypatch.setenv("COLORFGBG", told)
    settings = json.dumps({"shoal": {"theme": setting}} if setting else {})
    async with sitting(tmp_path, ScriptedModel(["yes"]), settings=settings) as at:
        assert at.app.theme == theme
