"""The input line: several lines, history, completion, long texts and images."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from textual.events import Key, Paste

from shoal.core.budgets.usage import ModelCard, TokenPrice
from shoal.core.conversation.messages import Base64ImageSource, ImageBlock, Message
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ScriptedModel
from shoal.surfaces.terminal.prompt_history import read_prompt_history
from tui_driver import drive_tui

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class PromptRecorder:
    """Model that records its prompts and answers with their number."""

    def __init__(self, *, images: bool = True) -> None:
        self.prompts: list[Message] = []
        card = ModelCard(id="heard", provider="test", price=TokenPrice(input=0.0, output=0.0), images=images)
        self.model = ScriptedModel(self._reply, card=card)

    def _reply(self, request: ModelRequest) -> str:
        self.prompts.append(request.messages[-1])
        return f"answer {len(self.prompts)}"

    @property
    def last_prompt(self) -> str:
        return self.prompts[-1].text


@pytest.mark.spec("USR-18")
async def test_a_prompt_can_have_several_lines(tmp_path: Path) -> None:
    recorder = PromptRecorder()
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.type_text("one")
        await at.press_keys("alt+enter")
        await at.type_text("two\\")
        await at.press_keys("enter")
        await at.type_text("three")
        await at.press_keys("shift+enter")
        await at.type_text("four")
        assert not recorder.prompts
        await at.press_keys("enter")
        await at.wait_for_text("answer 1")
        assert recorder.last_prompt.endswith("one\ntwo\nthree\nfour")


@pytest.mark.slow
async def test_up_and_down_recall_earlier_prompts_at_the_edges_of_the_text(tmp_path: Path) -> None:
    recorder = PromptRecorder()
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.submit_text("first")
        await at.submit_text("second\nof two lines")
        await at.wait_until_idle()
        await at.type_text("half")
        await at.press_keys("up")
        assert at.app.composer.text == "second\nof two lines"
        await at.press_keys("up")
        assert at.app.composer.text == "first"
        await at.press_keys("down", "down", "down")
        assert at.app.composer.text == "half", "what was half typed is there again"
    assert read_prompt_history(tmp_path / "history") == ["first", "second\nof two lines"]
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.press_keys("up")
        assert at.app.composer.text == "second\nof two lines", "the history is that of every session"


@pytest.mark.slow
async def test_a_slash_offers_commands_and_enter_runs_the_selected_one(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, PromptRecorder().model) as at:
        await at.type_text("/co")
        await at.wait_for_text("/cost     show the cost", "/compact  continue from a summary")
        await at.press_keys("down", "up", "enter")
        await at.wait_for_text("tokens in")
        assert at.app.composer.text == ""
        await at.type_text("/perm")
        await at.press_keys("tab")
        assert at.app.composer.text == "/permissions "
        await at.type_text("plan")
        await at.press_keys("enter")
        await at.wait_for_text("The mode is plan.")
        await at.type_text("/mem")
        await at.wait_for_text("list the instruction files")
        await at.press_keys("escape")
        await at.wait_until(lambda: "list the instruction files" not in at.screen_text)
        assert at.app.composer.text == "/mem", "Esc withdraws the proposals and leaves the text"


async def test_enter_right_after_a_command_name_ignores_the_completion(tmp_path: Path) -> None:
    async with drive_tui(tmp_path, PromptRecorder().model) as at:
        for key in ("/", "c", "o", "s", "t", "enter"):
            at.app.post_message(Key(key, key if len(key) == 1 else None))
        await at.wait_for_text("› /cost", "tokens in")
        assert "/to" not in at.screen_text


async def test_an_at_sign_offers_project_files(tmp_path: Path) -> None:
    recorder = PromptRecorder()
    project = tmp_path / "project"
    (project / "src" / "deep").mkdir(parents=True)
    (project / "src" / "deep" / "parser.py").write_text("")
    (project / ".git").mkdir()
    (project / ".git/HEAD").touch()
    (project / ".git" / "parser-of-git").write_text("")
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.type_text("look at @pars")
        await at.wait_for_text("@src/deep/parser.py")
        assert "parser-of-git" not in at.screen_text
        await at.press_keys("enter")
        assert at.app.composer.text == "look at @src/deep/parser.py "
        await at.press_keys("enter")
        await at.wait_for_text("answer 1")
        assert recorder.last_prompt.startswith("look at @src/deep/parser.py \n<system-reminder>")


@pytest.mark.spec("CMP-081")
async def test_an_at_sign_offers_agents_that_can_be_asked_for(tmp_path: Path) -> None:
    agents = {"harbour-painter": {"description": "Paints the harbour.", "prompt": "Paint."}}
    recorder = PromptRecorder()
    async with drive_tui(tmp_path, recorder.model, agents=agents) as at:
        await at.type_text("ask @agent-harb")
        await at.wait_for_text("@agent-harbour-painter  Paints the harbour.")
        await at.press_keys("enter", "enter")
        await at.wait_for_text("answer 1")
        assert "asks for the agent harbour-painter" in recorder.last_prompt


@pytest.mark.spec("CMP-123")
@pytest.mark.needs("mcp")
async def test_an_at_sign_offers_resources_of_mcp_servers(tmp_path: Path) -> None:
    server = Path(__file__).parents[1] / "mcp_client" / "guide_server.py"
    options = json.dumps({"resources": {"doc://north/1": "cold water"}})
    config = {"guide": {"command": sys.executable, "args": ["-I", "-S", str(server), options]}}
    recorder = PromptRecorder()
    async with drive_tui(tmp_path, recorder.model, mcp_config=[{"mcpServers": config}]) as at:
        await at.session.wait_for_mcp_servers()
        await at.type_text("see @guide")
        await at.wait_for_text("@guide:doc://north/1")
        await at.press_keys("enter", "enter")
        await at.wait_for_text("answer 1")
        assert "cold water" in recorder.last_prompt


async def test_a_long_paste_is_shown_as_a_placeholder_and_sent_whole(tmp_path: Path) -> None:
    recorder = PromptRecorder()
    text = "\n".join(f"line {number}" for number in range(120))
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.type_text("see ")
        at.app.composer.post_message(Paste(text))
        await at.wait_until(lambda: "[pasted 120 lines]" in at.app.composer.text)
        at.app.composer.post_message(Paste("a short\r\ntext"))
        await at.wait_until(lambda: at.app.composer.text == "see [pasted 120 lines]a short\ntext")
        await at.press_keys("enter")
        await at.wait_for_text("answer 1")
        assert recorder.last_prompt == f"see {text}a short\ntext"


async def test_terminal_codes_are_removed_from_pasted_text(tmp_path: Path) -> None:
    recorder = PromptRecorder()
    async with drive_tui(tmp_path, recorder.model) as at:
        at.app.composer.post_message(Paste("a\x1b]0;taken over\x07b\x1b[31mc\x00\x9bd"))
        await at.wait_until(lambda: at.app.composer.text != "")
        assert at.app.composer.text == "abcd"
        long_text = "\n".join(f"line\x1b[2J {number}" for number in range(120))
        at.app.composer.post_message(Paste(long_text))
        await at.wait_until(lambda: "[pasted 120 lines]" in at.app.composer.text)
        await at.press_keys("enter")
        await at.wait_for_text("answer 1")
        assert not any(code in recorder.last_prompt for code in "\x1b\x00\x07\x9b")
        assert recorder.last_prompt.endswith("line 119")


@pytest.mark.slow
@pytest.mark.spec("USR-18")
async def test_an_image_named_by_its_path_is_attached(tmp_path: Path) -> None:
    recorder = PromptRecorder()
    project = tmp_path / "project"
    project.mkdir()
    (project / "a shot.png").write_bytes(PNG)
    (project / "other.png").write_bytes(PNG)
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.submit_text("what is in 'a shot.png' and other.png, and none.png?")
        await at.wait_for_text("answer 1")
    images_sent = [each for each in recorder.prompts[0].content if isinstance(each, ImageBlock)]
    assert len(images_sent) == 1, "a comma belongs to no name"
    source = images_sent[0].source
    assert isinstance(source, Base64ImageSource)
    assert (source.media_type, base64.b64decode(source.data)) == ("image/png", PNG)
    assert recorder.last_prompt.startswith("what is in 'a shot.png'")


async def test_a_model_without_image_support_gets_no_image_and_the_user_is_warned(tmp_path: Path) -> None:
    recorder = PromptRecorder(images=False)
    project = tmp_path / "project"
    project.mkdir()
    (project / "shot.png").write_bytes(PNG)
    async with drive_tui(tmp_path, recorder.model) as at:
        await at.submit_text("see shot.png")
        await at.wait_for_text("shot.png was not sent")
        await at.wait_for_text("answer 1")
    assert not any(isinstance(each, ImageBlock) for each in recorder.prompts[0].content)
