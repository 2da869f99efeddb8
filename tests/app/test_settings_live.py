"""Settings while a session runs: changed files count, broken ones do not, answers are kept in them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

import shoal
from shoal.app.settings.keeping import keep, settings_path
from shoal.app.settings.live import LiveSettings
from shoal.app.settings.settings import load_settings
from shoal.app.settings.trust import answer
from shoal.core.errors import SettingsError
from shoal.core.events import Noted, ToolReturned
from shoal.core.messages import ToolUse
from shoal.core.permissions import AddDirectories, AddRules, RuleValue, SetMode
from shoal.core.requests import Request
from shoal.models.scripted import ScriptedModel


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / ".claude").mkdir(parents=True)
    return directory


class Watched:
    def __init__(self, project: Path) -> None:
        self.notes: list[str] = []
        self.file = project / ".claude" / "settings.json"
        self.live = LiveSettings(load_settings(cwd=project), cwd=project, note=self.notes.append)

    def denied(self) -> list[str]:
        return [str(rule) for rule in self.live.current(fresh=True).deny]

    def write(self, *deny: str) -> None:
        self.file.write_text(json.dumps({"permissions": {"deny": deny}}))


@pytest.fixture
def watched(project: Path) -> Watched:
    return Watched(project)


@pytest.mark.spec("HOM-03")
def test_a_changed_file_counts_from_the_next_look_on(watched: Watched) -> None:
    before = watched.live.current(fresh=True)
    assert watched.live.current(fresh=True) is before
    watched.write("Bash(rm:*)")
    assert watched.denied() == ["Bash(rm:*)"]
    watched.write("Bash(rm:*)", "Read")
    assert watched.denied() == ["Bash(rm:*)", "Read"]
    watched.file.unlink()
    assert watched.denied() == []
    assert watched.notes == []


@pytest.mark.spec("HOM-03")
def test_a_change_of_the_same_size_and_the_same_time_counts_too(watched: Watched) -> None:
    for tool in ("Read", "Edit"):
        watched.write(tool)
        os.utime(watched.file, (1_000_000, 1_000_000))
        assert watched.denied() == [tool]


def test_a_broken_change_is_told_once_and_the_last_good_values_stay(watched: Watched) -> None:
    watched.write("Bash(rm:*)")
    assert watched.denied() == ["Bash(rm:*)"]
    watched.file.write_text('{"permissions": {"deny": ["Bash("]}}')
    assert watched.denied() == watched.denied() == ["Bash(rm:*)"]
    (note,) = watched.notes
    assert f"{watched.file}:1" in note
    assert "the earlier ones stay" in note
    watched.file.unlink()
    watched.file.mkdir()
    assert watched.denied() == ["Bash(rm:*)"]
    assert len(watched.notes) == 2
    watched.file.rmdir()
    watched.write()
    assert watched.denied() == []


@pytest.mark.spec("PRM-02")
def test_the_flags_of_the_run_stay_whatever_the_files_say(project: Path) -> None:
    live = LiveSettings(
        load_settings(cwd=project), cwd=project, allow=["Read"], deny=["Bash(rm:*)"], note=lambda _: None
    )
    (project / ".claude" / "settings.json").write_text('{"permissions": {"allow": ["Edit"]}}')
    answer(load_settings(cwd=project), project, trusted=True)
    standing = live.current(fresh=True)
    assert [(str(rule), rule.source) for rule in (*standing.allow, *standing.deny)] == [
        ("Read", "--allowedTools"),
        ("Edit", f"{project}/.claude/settings.json:1"),
        ("Bash(rm:*)", "--disallowedTools"),
    ]


@pytest.mark.spec("PRM-02", "HOM-03", "HOM-02")
def test_rules_of_all_sources_are_joined_and_each_knows_its_line(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "settings.json").write_text('{"permissions": {\n "allow": ["Read"]}}')
    (project / ".claude" / "settings.json").write_text('{"permissions": {"deny": [\n"Read(a)",\n"Read(b)"]}}')
    (project / ".claude" / "settings.local.json").write_text('{"permissions": {"ask": ["Bash"]}}')
    managed = tmp_path / "managed.json"
    managed.write_text('{"permissions": {"deny": ["WebFetch"], "additionalDirectories": ["../lib"]}}')
    standing = load_settings(
        cwd=project,
        environ={"SHOAL_HOME": str(home)},
        given='{"permissions": {"allow": ["Edit"]}}',
        managed=(managed,),
    ).standing
    found = [(str(rule), rule.source) for rule in (*standing.allow, *standing.ask, *standing.deny)]
    assert found == [
        ("Edit", "--settings:1"),
        ("Read", f"{home}/settings.json:2"),
        ("Bash", f"{project}/.claude/settings.local.json:1"),
        ("WebFetch", f"{managed}:1"),
        ("Read(a)", f"{project}/.claude/settings.json:2"),
        ("Read(b)", f"{project}/.claude/settings.json:3"),
    ]
    assert standing.directories == (project / "../lib",)


def test_a_bad_pattern_is_an_error_with_file_and_line(project: Path) -> None:
    file = project / ".claude" / "settings.json"
    file.write_text('{"permissions": {\n"allow": ["Read"],\n"deny": [\n"Bash(x)",\n"Read([a)"]}}')
    with pytest.raises(SettingsError, match=r"settings\.json:5: permissions\.deny: .*not closed") as caught:
        load_settings(cwd=project)
    assert (caught.value.path, caught.value.line) == (file, 5)


def test_rules_of_one_file_that_contradict_each_other_are_an_error(project: Path) -> None:
    file = project / ".claude" / "settings.json"
    file.write_text('{"permissions": {\n"allow": ["Bash(make:*)"],\n"deny": ["Read", "Bash(make:*)"]}}')
    with pytest.raises(SettingsError, match=r":3: the rule Bash\(make:\*\) contradicts .* line 2") as caught:
        load_settings(cwd=project)
    assert (caught.value.path, caught.value.line) == (file, 3)


def test_two_files_may_say_the_opposite_and_deny_wins(project: Path) -> None:
    (project / ".claude" / "settings.json").write_text('{"permissions": {"allow": ["Bash(make:*)"]}}')
    (project / ".claude" / "settings.local.json").write_text('{"permissions": {"deny": ["Bash(make:*)"]}}')
    assert load_settings(cwd=project).standing.deny


RULE = AddRules(rules=(RuleValue(tool_name="Bash", rule_content="make:*"),), destination="localSettings")


@pytest.mark.spec("HOM-05")
def test_what_is_kept_joins_the_file_and_everything_else_in_it_stays(project: Path) -> None:
    file = project / ".claude" / "settings.local.json"
    file.write_text('{\n    "zzz": {"a": [1, "ü"]},\n    "permissions": {"allow": ["Read"], "odd": 1}\n}\n')
    file.chmod(0o640)
    keep(RULE, file)
    keep(RULE, file)
    keep(AddDirectories(directories=("/x",), destination="localSettings"), file)
    keep(SetMode(mode="acceptEdits", destination="localSettings"), file)
    found = json.loads(file.read_text())
    assert found == {
        "zzz": {"a": [1, "ü"]},
        "permissions": {
            "allow": ["Read", "Bash(make:*)"],
            "odd": 1,
            "additionalDirectories": ["/x"],
            "defaultMode": "acceptEdits",
        },
    }
    assert file.read_text().startswith('{\n    "zzz"')
    assert "ü" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_file_that_is_not_there_is_made_and_one_that_is_broken_is_left(project: Path) -> None:
    file = project / ".claude" / "settings.local.json"
    keep(RULE, file)
    assert json.loads(file.read_text()) == {"permissions": {"allow": ["Bash(make:*)"]}}
    file.write_text("{broken")
    with pytest.raises(SettingsError, match="not valid JSON"):
        keep(RULE, file)
    assert file.read_text() == "{broken"


def test_a_linked_file_is_changed_where_it_is(project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    file = project / ".claude" / "settings.local.json"
    file.symlink_to(real)
    keep(RULE, file)
    assert file.is_symlink()
    assert "make" in real.read_text()


def test_each_destination_has_its_file(project: Path) -> None:
    settings = load_settings(cwd=project)
    assert settings_path("localSettings", settings, project) == project / ".claude" / "settings.local.json"
    assert settings_path("projectSettings", settings, project) == project / ".claude" / "settings.json"
    assert settings_path("userSettings", settings, project) == settings.home / "settings.json"


async def test_a_change_counts_for_the_next_tool_call_of_a_running_session(project: Path) -> None:
    file = project / ".claude" / "settings.json"
    steps = iter(("none", "allow", "deny", "broken", "end"))

    def mind(request: Request) -> ToolUse | str:
        step = next(steps)
        if step in ("allow", "deny"):
            file.write_text(json.dumps({"permissions": {step: ["Bash(touch:*)"]}}))
            answer(load_settings(cwd=project), project, trusted=True)
        elif step == "broken":
            file.write_text("{")
        return "done" if step == "end" else ToolUse(id=step, name="Bash", input={"command": f"touch {step}"})

    async with shoal.open(cwd=project, model=ScriptedModel(mind)) as session:
        events = [event async for event in session.run("go")]
    failed = {event.call: event.result.is_error for event in events if isinstance(event, ToolReturned)}
    assert failed == {"none": True, "allow": False, "deny": True, "broken": True}
    notes = [event.text for event in events if isinstance(event, Noted) and str(file) in event.text]
    assert len(notes) == 1
    assert f"{file}:1: not valid JSON" in notes[0]


async def test_a_session_is_not_changed_into_one_that_skips_permissions(project: Path) -> None:
    async with shoal.open(cwd=project, model=ScriptedModel(["hello"])) as session:
        with pytest.raises(SettingsError, match="--dangerously-skip-permissions"):
            session.set_mode("bypassPermissions")
        assert session.parts.permissions.mode == "default"
    async with shoal.open(cwd=project, model=ScriptedModel(["hello"]), skip_permissions=True) as session:
        session.set_mode("default")
        session.set_mode("bypassPermissions")
        assert session.parts.permissions.mode == "bypassPermissions"
