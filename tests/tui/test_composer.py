"""Where a person types: lines, history, completion, long texts and pictures."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from textual.events import Key, Paste

from shoal.core.messages import Base64Source, Image, Message
from shoal.core.requests import Request
from shoal.core.usage import ModelCard, Price
from shoal.models.scripted import ScriptedModel
from shoal.surfaces.terminal.history import read_history
from tui_rig import sitting

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Heard:
    """A mind that keeps what it was asked and says how much it was."""

    def __init__(self, *, images: bool = True) -> None:
        self.prompts: list[Message] = []
        card = ModelCard(id="heard", provider="test", price=Price(input=0.0, output=0.0), images=images)
        self.model = ScriptedModel(self._answer, card=card)

    def _answer(self, request: Request) -> str:
        self.prompts.append(request.messages[-1])
        return f"answer {len(self.prompts)}"

    @property
    def last(self) -> str:
        return self.prompts[-1].text


@pytest.mark.spec("USR-18")
async def test_a_prompt_has_as_many_lines_as_one_likes(tmp_path: Path) -> None:
    heard = Heard()
    async with sitting(tmp_path, heard.model) as at:
        await at.type("one")
        await at.press("alt+enter")
        await at.type("two\\")
        await at.press("enter")
        await at.type("three")
        await at.press("shift+enter")
        await at.type("four")
        assert not heard.prompts
        await at.press("enter")
        await at.shows("answer 1")
        assert heard.last.endswith("one\ntwo\nthree\nfour")


async def test_what_was_typed_before_comes_back_at_the_edges_of_the_text(tmp_path: Path) -> None:
    heard = Heard()
    async with sitting(tmp_path, heard.model) as at:
        await at.say("first")
        await at.say("second\nof two lines")
        await at.rests()
        await at.type("half")
        await at.press("up")
        assert at.app.composer.text == "second\nof two lines"
        await at.press("up")
        assert at.app.composer.text == "first"
        await at.press("down", "down", "down")
        assert at.app.composer.text == "half", "what was half typed is there again"
    assert read_history(tmp_path / "history") == ["first", "second\nof two lines"]
    async with sitting(tmp_path, heard.model) as at:
        await at.press("up")
        assert at.app.composer.text == "second\nof two lines", "the history is that of every session"


async def test_a_slash_offers_the_commands_and_enter_takes_the_one_that_is_marked(tmp_path: Path) -> None:
    async with sitting(tmp_path, Heard().model) as at:
        await at.type("/co")
        await at.shows("/cost     spent since", "/compact  go on from a summary")
        await at.press("down", "up", "enter")
        await at.shows("tokens in")
        assert at.app.composer.text == ""
        await at.type("/perm")
        await at.press("tab")
        assert at.app.composer.text == "/permissions "
        await at.type("plan")
        await at.press("enter")
        await at.shows("The mode is plan.")
        await at.type("/mem")
        await at.shows("the files with instructions")
        await at.press("escape")
        await at.until(lambda: "the files with instructions" not in at.text)
        assert at.app.composer.text == "/mem", "Esc withdraws the proposals and leaves the text"


async def test_what_is_typed_in_one_go_is_what_is_entered(tmp_path: Path) -> None:
    async with sitting(tmp_path, Heard().model) as at:
        for key in ("/", "c", "o", "s", "t", "enter"):
            at.app.post_message(Key(key, key if len(key) == 1 else None))
        await at.shows("› /cost", "tokens in")
        assert "/to" not in at.text


async def test_an_at_sign_offers_the_files_of_the_project(tmp_path: Path) -> None:
    heard = Heard()
    project = tmp_path / "project"
    (project / "src" / "deep").mkdir(parents=True)
    (project / "src" / "deep" / "parser.py").write_text("")
    (project / ".git").mkdir()
    (project / ".git" / "parser-of-git").write_text("")
    async with sitting(tmp_path, heard.model) as at:
        await at.type("look at @pars")
        await at.shows("@src/deep/parser.py")
        assert "parser-of-git" not in at.text
        await at.press("enter")
        assert at.app.composer.text == "look at @src/deep/parser.py "
        await at.press("enter")
        await at.shows("answer 1")
        assert heard.last == "look at @src/deep/parser.py "


async def test_a_long_text_is_pasted_as_a_mark_and_said_whole(tmp_path: Path) -> None:
    heard = Heard()
    text = "\n".join(f"line {number}" for number in range(120))
    async with sitting(tmp_path, heard.model) as at:
        await at.type("see ")
        at.app.composer.post_message(Paste(text))
        await at.until(lambda: "[pasted 120 lines]" in at.app.composer.text)
        at.app.composer.post_message(Paste("a short\r\ntext"))
        await at.until(lambda: at.app.composer.text == "see [pasted 120 lines]a short\ntext")
        await at.press("enter")
        await at.shows("answer 1")
        assert heard.last == f"see {text}a short\ntext"


@pytest.mark.spec("USR-18")
async def test_a_picture_named_by_its_path_goes_along(tmp_path: Path) -> None:
    heard = Heard()
    project = tmp_path / "project"
    project.mkdir()
    (project / "a shot.png").write_bytes(PNG)
    (project / "other.png").write_bytes(PNG)
    async with sitting(tmp_path, heard.model) as at:
        await at.say("what is in 'a shot.png' and other.png, and none.png?")
        await at.shows("answer 1")
    pictures = [each for each in heard.prompts[0].content if isinstance(each, Image)]
    assert len(pictures) == 1, "a comma belongs to no name"
    source = pictures[0].source
    assert isinstance(source, Base64Source)
    assert (source.media_type, base64.b64decode(source.data)) == ("image/png", PNG)
    assert heard.last.startswith("what is in 'a shot.png'")


async def test_a_model_that_sees_nothing_is_sent_no_picture_and_that_is_told(tmp_path: Path) -> None:
    heard = Heard(images=False)
    project = tmp_path / "project"
    project.mkdir()
    (project / "shot.png").write_bytes(PNG)
    async with sitting(tmp_path, heard.model) as at:
        await at.say("see shot.png")
        await at.shows("shot.png is not sent")
        await at.shows("answer 1")
    assert not any(isinstance(each, Image) for each in heard.prompts[0].content)
