"""The mail between agents as a panel: who wrote what to whom, and whether it was read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from parser_scene import parser_scene

from cast import Gate, all_turns, use
from shoal.app.picture.letters import Letters
from shoal.core.events import MailPosted
from shoal.core.ids import LEAD
from shoal.surfaces.tui.panels import mail
from shoal.surfaces.tui.panels.mail import MailPanel
from troupe import last_words, member, opened, tell, troupe
from tui_scene import DeadHelm, PanelsApp, Scene, shown_live, until
from tui_shots import assert_looks, text_of

HOSTILE = "[bold]x[/ \x1b[31mred\x07[/red]"


@pytest.mark.spec("USR-18")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_letters_are_listed_with_those_not_read_marked(
    size: tuple[int, int], helm: DeadHelm, snapshots: Path
) -> None:
    scene = await parser_scene()
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=size) as pilot:
        await pilot.pause()
        assert_looks(pilot.app, snapshots / f"mail-{size[0]}x{size[1]}.svg")


async def test_mail_is_filtered_by_member_and_by_whether_it_was_read(helm: DeadHelm) -> None:
    scene = await parser_scene()
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("f", *"eve", "down", "enter")
        await until(pilot, lambda: "only of eve" in text_of(pilot.app))
        assert "Please begin" not in text_of(pilot.app)
        assert "[idle notification]" in text_of(pilot.app)
        await pilot.press("f", "enter", "u")
        await until(pilot, lambda: "only unread" in text_of(pilot.app))
        assert "The lexer drops" not in text_of(pilot.app)
        assert "Then I test comments" in text_of(pilot.app)


async def test_a_letter_that_comes_between_two_looks_is_listed(helm: DeadHelm) -> None:
    scene = await parser_scene()
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        scene.letter("ada", "bob", "just now", taken=False)  # told to the picture, and not yet to the panel
        await pilot.press("u")
        await until(pilot, lambda: "just now" in text_of(pilot.app))


async def test_the_cursor_follows_new_letters_until_the_person_goes_back(helm: DeadHelm) -> None:
    scene = await parser_scene()
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        for number in range(40):
            scene.letter("ada", "bob", f"letter {number}.")
        panel.look()
        await until(pilot, lambda: "letter 39." in text_of(pilot.app))
        await pilot.press("up")
        scene.letter("ada", "bob", "one more")
        panel.look()
        await until(pilot, lambda: "45 letters" in text_of(pilot.app))
        assert panel.rows.cursor == panel.rows.entries[-3].key


async def test_of_very_many_letters_the_latest_are_listed(
    helm: DeadHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "MOST", 10)
    scene = Scene()
    for number in range(25):
        scene.letter("ada", "bob", f"letter {number}.")
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await pilot.press("home")
        await pilot.pause()
        assert "15 older letters" in text_of(pilot.app)
        assert "letter 14." not in text_of(pilot.app)


async def test_letters_that_the_picture_let_go_of_are_counted(
    helm: DeadHelm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail, "MOST", 10)
    scene = Scene()
    scene.picture.letters = Letters(most=15)
    for number in range(25):
        scene.letter("ada", "bob", f"letter {number}.")
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        for number in range(25, 40):
            scene.letter("ada", "bob", f"letter {number}.", taken=number < 39)
        panel.look()
        await until(pilot, lambda: "40 letters  1 not read yet" in text_of(pilot.app))
        await pilot.press("home")
        await until(pilot, lambda: "30 older letters" in text_of(pilot.app))


async def test_one_identity_in_two_inboxes_is_two_lines(helm: DeadHelm) -> None:
    scene = Scene()
    for to in ("ada", "bob"):
        mail_to = {"team": "crew", "mail": "m", "sender": "eve", "to": to}
        scene.happens(MailPosted(agent=LEAD, kind="message", preview="hello", **mail_to))
    panel = MailPanel(scene.picture, helm, clock=scene.clock)
    async with PanelsApp(panel).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "2 letters" in text_of(pilot.app))
        assert text_of(pilot.app).count("hello") == 2


async def test_a_letter_is_read_whole_from_the_inbox_else_its_beginning(
    tmp_path: Path, helm: DeadHelm
) -> None:
    long = "\n".join([HOSTILE, *(f"line {number}" for number in range(300))])
    gate = Gate()
    model = troupe(
        lead=[use("TeamCreate", team_name="crew"), member("ann"), tell("ann", long), "wait", last_words],
        ann=[use("Gate"), "thanks"],
    )
    async with opened(tmp_path, model, tools=[gate.tool]) as session, asyncio.TaskGroup() as group:
        turn = group.create_task(all_turns(session))
        async with shown_live(session, MailPanel, far=True, size=(120, 40)) as (panel, pilot):
            await until(pilot, lambda: "a word: [bold]x[/ red[/red]" in text_of(pilot.app))
            await pilot.press("end", "enter")
            await until(pilot, lambda: "posted" in text_of(pilot.app))
            await pilot.press("end")
            await until(pilot, lambda: "line 299" in text_of(pilot.app))
            assert not set(text_of(pilot.app)) & set("\x1b\x07")
            picture = panel.picture
        turn.cancel()
    panel = MailPanel(picture, helm)
    async with PanelsApp(panel).run_test(size=(120, 40)) as pilot:
        await pilot.press("end", "enter")
        await until(pilot, lambda: "Only its beginning is kept" in text_of(pilot.app))
        assert "line 299" not in text_of(pilot.app)
