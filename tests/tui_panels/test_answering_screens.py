"""How questions look, and what becomes of keys that answer them; no run is needed for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from parser_scene import CHOOSE, FIRST_PLAN, MAY_RUN, PLAN, asking_scene
from textual.widgets import TextArea

from shoal.app.picture.rows import QuestionRow
from shoal.core.ids import AgentId
from shoal.core.questions import (
    Allowed,
    Answer,
    Approved,
    ApprovePlan,
    Choice,
    Choose,
    Chosen,
    Denied,
    MayRun,
    Option,
    Question,
)
from shoal.surfaces.tui import answering
from shoal.surfaces.tui.answering import AnswerScreen
from shoal.surfaces.tui.answering_calls import checked_input, shown_input
from shoal.surfaces.tui.panels.questions import QuestionsPanel
from tui_scene import DeadHelm, PanelsApp, Scene, open_in, until
from tui_shots import assert_looks, text_of

HOSTILE = "[bold]x[/ \x1b[31mred\x1b]8;;http://a.example\x07link\x1b]8;;\x07[/red] \u202e"


class Told(DeadHelm):
    """A helm that keeps the answers."""

    def __init__(self, home: Path, *, stands: bool = True) -> None:
        super().__init__(home)
        self.answers: list[Answer] = []
        self.stands = stands

    def answer(self, question: str, answer: Answer) -> bool:
        self.answers.append(answer)
        return self.stands


Cases = list[tuple[list[str], Answer]]


async def assert_answers(tmp_path: Path, question: Question, cases: Cases) -> None:
    """Each of these keys gives this answer, and nothing else."""
    scene = await asking_scene()
    helm = Told(tmp_path)
    app = PanelsApp(QuestionsPanel(scene.picture, helm, clock=scene.clock))
    row = scene.picture.questions.get(question.id) or asked(question)
    async with app.run_test(size=(120, 40)) as pilot:
        for keys, answer in cases:
            await app.push_screen(AnswerScreen(row, helm, picture=scene.picture))
            await pilot.press(*keys)
            await pilot.pause()
            assert helm.answers == [answer], keys
            assert len(app.screen_stack) == 1
            helm.answers.clear()


def asked(question: Question) -> QuestionRow:
    return QuestionRow(
        id=question.id, agent=question.agent, name=str(question.agent), asked=0, question=question
    )


def _both(parser: str, files: str) -> dict[str, str]:
    return {"Which parser is it to be?": parser, "Which files may change?": files}


LOOKS: list[tuple[str, str, tuple[int, int], list[str]]] = [
    ("list", "", (80, 24), []),
    ("call", "q-run", (80, 24), []),
    ("call-edit", "q-run", (120, 40), ["e"]),
    ("plan", "q-plan-2", (80, 24), []),
    ("plan-changes", "q-plan-2", (80, 24), ["d"]),
    ("plan-changes", "q-plan-2", (120, 40), ["d"]),
    ("choice", "q-choose", (80, 24), ["1", "2"]),
]


@pytest.mark.spec("USR-05", "USR-26")
@pytest.mark.parametrize(
    ("name", "question", "size", "keys"), LOOKS, ids=[f"{name}-{size[0]}" for name, _, size, _ in LOOKS]
)
async def test_questions_look_so(
    name: str, question: str, size: tuple[int, int], keys: list[str], helm: DeadHelm, snapshots: Path
) -> None:
    scene = await asking_scene()
    app = PanelsApp(QuestionsPanel(scene.picture, helm, clock=scene.clock))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        if question:
            row = scene.picture.questions.row(question)
            await app.push_screen(AnswerScreen(row, helm, picture=scene.picture))
        for editor in app.screen.query(TextArea):
            editor.cursor_blink = False
        await pilot.press(*keys)
        await pilot.pause()
        assert_looks(app, snapshots / f"question-{name}-{size[0]}x{size[1]}.svg")


@pytest.mark.spec("USR-05", "USR-27")
async def test_a_call_is_allowed_changed_or_refused(tmp_path: Path) -> None:
    cases: Cases = [
        (["y"], Allowed()),
        (["enter"], Allowed()),
        (["s"], Allowed(remember="session")),
        (["down", "enter"], Allowed(remember="session")),
        (["p"], Allowed(remember="settings")),
        (["n", "enter"], Denied(reason="the person said no.")),
        (["n", *"no", "enter"], Denied(reason="no")),
        (["n", "escape", "y"], Allowed()),
        (["e", "ctrl+s"], Allowed()),
        (
            ["e", "ctrl+end", *" -k", "ctrl+s"],
            Allowed(input={**MAY_RUN.input, "command": "rm -rf build && make test -k"}),
        ),
    ]
    await assert_answers(tmp_path, MAY_RUN, cases)


def write_call(given: dict[str, Any]) -> MayRun:
    return MayRun(id="q", agent=AgentId("bob"), tool_use_id="t", tool="Write", input=given, reason="")


async def test_what_nothing_suggests_is_not_offered(tmp_path: Path) -> None:
    bare = write_call({"content": "a"})
    await assert_answers(tmp_path, bare, [(["s", "p", "x", "y"], Allowed())])


async def test_an_input_that_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    write = write_call({"content": "a", "mode": 1})
    helm, app = Told(tmp_path), PanelsApp(QuestionsPanel(Scene().picture, DeadHelm(tmp_path)))
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(AnswerScreen(asked(write), helm))
        await pilot.press("e", "{", "ctrl+s")
        await until(pilot, lambda: "It is not JSON" in text_of(app))
        app.screen.query_one(TextArea).text = '{"content": "b", "mode": 2}'
        await pilot.press("ctrl+s")
        await pilot.pause()
    assert helm.answers == [Allowed(input={"content": "b", "mode": 2})]


def test_of_a_very_long_input_it_is_told_how_much_is_not_shown() -> None:
    shown = [each.plain for each in shown_input(write_call({"a": "x" * 9_000, "b": "y\n" * 5_000}))]
    assert shown[0] == f"a: {'x' * 4_000}… (9000 characters in all)"
    assert shown[1:3] == ["b:", "  y"]
    assert shown[-1] == "  … 3000 more lines (10000 characters in all)"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "must be a JSON object"),
        ('{"content": 1}', "content was a text, and is a number now"),
        ('{"other": "a"}', "None of what the tool was given is left: content"),
        ('{"content": "a"', "in line 1"),
    ],
)
def test_a_typed_input_is_checked(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        checked_input(text, {"content": "a"})


@pytest.mark.spec("USR-05")
async def test_choices_are_made_one_after_the_other(tmp_path: Path) -> None:
    cases: Cases = [
        (["2", "1", "3", "d"], Chosen(answers=_both("Generated", "src, docs"))),
        (
            ["o", *"none", "enter", "2", "o", *"all", "enter", "d"],
            Chosen(answers=_both("none", "tests, all")),
        ),
        (["1", "b", "2", "1", "1", "2", "d"], Chosen(answers=_both("Generated", "tests"))),
        (["1", "d", "n", *"no", "enter"], Denied(reason="no")),
    ]
    await assert_answers(tmp_path, CHOOSE, cases)


@pytest.mark.spec("USR-26")
async def test_a_plan_is_approved_in_a_mode_or_rejected(tmp_path: Path) -> None:
    cases: Cases = [
        (["y"], Approved(digest="2")),
        (["e"], Approved(digest="2", mode="acceptEdits")),
        (["m", *"dont", "enter"], Approved(digest="2", mode="dontAsk")),
        (["m", "escape", "d", "d", "n", *"why", "enter"], Denied(reason="why")),
    ]
    await assert_answers(tmp_path, PLAN, cases)


async def test_a_first_plan_is_compared_with_nothing(tmp_path: Path) -> None:
    await assert_answers(tmp_path, FIRST_PLAN, [(["d", "y"], Approved(digest="1"))])


@pytest.mark.spec("USR-05")
async def test_a_question_that_puts_itself_up_takes_no_key_that_was_meant_for_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helm, app = Told(tmp_path), PanelsApp(QuestionsPanel(Scene().picture, DeadHelm(tmp_path)))
    # Between two keys of a slow machine may lie any time; none is so slow as that.
    monkeypatch.setattr(answering, "QUIET", 3600)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = AnswerScreen(asked(MAY_RUN), helm, unasked=True)
        await app.push_screen(screen)
        await pilot.press(*"yes", "enter", "escape")
        await pilot.pause()
        assert app.screen is screen
        assert helm.answers == []


@pytest.mark.spec("USR-05")
async def test_a_question_that_puts_itself_up_takes_keys_after_a_while_without_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helm, app = Told(tmp_path), PanelsApp(QuestionsPanel(Scene().picture, DeadHelm(tmp_path)))
    monkeypatch.setattr(answering, "QUIET", 0.05)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = AnswerScreen(asked(MAY_RUN), helm, unasked=True)
        await app.push_screen(screen)
        await screen.ready.wait()
        await pilot.press("y")
        await pilot.pause()
    assert helm.answers == [Allowed()]


@pytest.mark.spec("USR-05")
async def test_the_first_answer_stands_and_who_comes_later_is_told(tmp_path: Path) -> None:
    scene = await asking_scene()
    helm = Told(tmp_path, stands=False)
    panel = QuestionsPanel(scene.picture, helm, clock=scene.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert open_in(panel) == 3
        await pilot.press("enter", "y")
        await until(pilot, lambda: app.words)
        assert app.words == ["Somebody answered bob first; this answer is dropped."]
        await pilot.press("down", "enter", "m")
        await until(pilot, lambda: len(app.screen_stack) == 3)
        scene.answers(PLAN, Approved(digest="2"))
        panel.look()
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await until(pilot, lambda: "ada has its answer from elsewhere: approved." in app.words)
        assert open_in(panel) == 2
        assert panel.rows.cursor == MAY_RUN.id, "it is on the next that is open"
        await pilot.press("end", "enter")
        await until(pilot, lambda: "ada asked" in text_of(app))
        await pilot.press("escape", "home", "enter")
        scene.picture.lost()
        panel.look()
        await until(pilot, lambda: open_in(panel) == 0 and len(app.screen_stack) == 1)
        told = "The question of bob was withdrawn: its run has ended."
        await until(pilot, lambda: told in app.words)


@pytest.mark.spec("USR-05")
async def test_a_key_that_comes_twice_puts_a_question_up_once_and_one_that_comes_late_not_at_all(
    tmp_path: Path,
) -> None:
    scene = await asking_scene()
    panel = QuestionsPanel(scene.picture, Told(tmp_path), clock=scene.clock)
    app = PanelsApp(panel)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        panel.rows.action_choose()
        panel.rows.action_choose()
        await pilot.pause()
        assert len(app.screen_stack) == 2
        scene.answers(MAY_RUN, Allowed())
        panel.look()
        await until(pilot, lambda: len(app.screen_stack) == 1)
        scene.answers(PLAN, Approved(digest="2"))
        panel.rows.stand_on(PLAN.id)
        panel.rows.action_choose()
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_an_answer_that_nobody_hears_is_told(helm: DeadHelm) -> None:
    scene = await asking_scene()
    app = PanelsApp(QuestionsPanel(scene.picture, helm, clock=scene.clock))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "y")
        await until(pilot, lambda: app.words)
        assert app.words == ["There is no question 'q-run'."]
        assert len(app.screen_stack) == 1


@pytest.mark.spec("USR-11")
@pytest.mark.parametrize("kind", ["call", "choice", "plan"])
async def test_what_the_model_put_into_a_question_is_only_shown(kind: str, helm: DeadHelm) -> None:
    who: dict[str, Any] = {"id": "q", "agent": AgentId(HOSTILE)}
    option = Option(label=HOSTILE, description=HOSTILE)
    questions: dict[str, Question] = {
        "call": MayRun(
            **who,
            tool_use_id="t",
            tool=HOSTILE,
            input={HOSTILE: HOSTILE, "b": [HOSTILE], "c": f"{HOSTILE}\n{HOSTILE}"},
            reason=HOSTILE,
            rule=HOSTILE,
        ),
        "choice": Choose(
            **who, choices=(Choice(question=HOSTILE, header=HOSTILE, options=(option, option)),)
        ),
        "plan": ApprovePlan(
            **who, plan=f"# {HOSTILE}\n\n{HOSTILE}\n\n`{HOSTILE}`", path=HOSTILE, digest="", wishes=(HOSTILE,)
        ),
    }
    scene = Scene()
    if kind == "plan":
        scene.asks(ApprovePlan(id="p", agent=AgentId(HOSTILE), plan=HOSTILE, path=HOSTILE, digest=""))
    scene.asks(questions[kind])
    app = PanelsApp(QuestionsPanel(scene.picture, helm, clock=scene.clock))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        shown = text_of(app)
        await app.push_screen(AnswerScreen(scene.picture.questions.row("q"), helm, picture=scene.picture))
        await pilot.pause()
        shown += text_of(app)
        await pilot.press("d", "n")
        await pilot.pause()
        shown += text_of(app)
    assert shown.count("[bold]x[/ redlink[/red]") >= 6
    assert not set(shown) & set("\x1b\x07\u202e")
