"""Settings during a session: changed files apply, broken ones do not, and answers are saved."""

from __future__ import annotations

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import shoal
from shoal.app.settings.configured_rules import add_permission_flag_rules
from shoal.app.settings.live_settings import AutoReloadingSettings
from shoal.app.settings.settings import load_settings
from shoal.app.settings.settings_trust import save_project_trust_decision
from shoal.app.settings.settings_writer import (
    edit_json_file,
    find_settings_path,
    save_default_model,
    save_permission_suggestion,
)
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.errors import SettingsError
from shoal.core.events import NoteAdded, ToolOutputReturned
from shoal.core.permissions.permission_changes import (
    AddDirectoriesPermissionSuggestion,
    AddPermissionRulesSuggestion,
    SetPermissionModeSuggestion,
    SuggestedPermissionRule,
)
from shoal.models.scripted_model import ScriptedModel


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / ".claude").mkdir(parents=True)
    return directory


class WatchedSettings:
    def __init__(self, project: Path) -> None:
        self.notes: list[str] = []
        self.file = project / ".claude" / "settings.json"
        self.live = AutoReloadingSettings(load_settings(cwd=project), cwd=project, note=self.notes.append)

    def list_denied(self) -> list[str]:
        return [str(rule) for rule in self.live.load_rules(fresh=True).deny]

    def write(self, *deny: str) -> None:
        self.file.write_text(json.dumps({"permissions": {"deny": deny}}))


@pytest.fixture
def watch(project: Path) -> WatchedSettings:
    return WatchedSettings(project)


@pytest.mark.spec("HOM-03")
@pytest.mark.parametrize("name", ["settings.json", "settings.local.json"])
def test_a_settings_file_in_a_new_directory_applies_at_the_next_check(project: Path, name: str) -> None:
    (project / ".claude").rmdir()
    watch = WatchedSettings(project)
    before = watch.live.load_rules(fresh=True)
    (project / ".claude").mkdir()
    assert watch.live.load_rules(fresh=True) is before
    watch.file.with_name(name).write_text(json.dumps({"permissions": {"deny": ["Read"]}}))
    assert watch.list_denied() == ["Read"]


@pytest.mark.spec("HOM-03")
def test_a_changed_settings_file_applies_at_the_next_check(watch: WatchedSettings) -> None:
    before = watch.live.load_rules(fresh=True)
    assert watch.live.load_rules(fresh=True) is before
    watch.write("Bash(rm:*)")
    assert watch.list_denied() == ["Bash(rm:*)"]
    watch.write("Bash(rm:*)", "Read")
    assert watch.list_denied() == ["Bash(rm:*)", "Read"]
    watch.file.unlink()
    assert watch.list_denied() == []
    assert watch.notes == []


@pytest.mark.spec("HOM-03")
def test_a_change_with_equal_size_and_time_is_noticed(watch: WatchedSettings) -> None:
    for tool in ("Read", "Edit"):
        watch.write(tool)
        os.utime(watch.file, (1_000_000, 1_000_000))
        assert watch.list_denied() == [tool]


def test_a_broken_change_is_reported_once_and_the_last_good_values_stay(
    watch: WatchedSettings,
) -> None:
    watch.write("Bash(rm:*)")
    assert watch.list_denied() == ["Bash(rm:*)"]
    watch.file.write_text('{"permissions": {"deny": ["Bash("]}}')
    assert watch.list_denied() == watch.list_denied() == ["Bash(rm:*)"]
    (note,) = watch.notes
    assert f"{watch.file}:1" in note
    assert "the previous settings stay in effect" in note
    watch.file.unlink()
    watch.file.mkdir()
    assert watch.list_denied() == ["Bash(rm:*)"]
    assert len(watch.notes) == 2
    watch.file.rmdir()
    watch.write()
    assert watch.list_denied() == []


@pytest.mark.spec("PRM-02")
def test_flags_of_the_run_override_changed_files(project: Path) -> None:
    add_rules = partial(add_permission_flag_rules, allow=["Read"], deny=["Bash(rm:*)"])
    live = AutoReloadingSettings(
        load_settings(cwd=project), cwd=project, add_rules=add_rules, note=lambda _: None
    )
    (project / ".claude" / "settings.json").write_text('{"permissions": {"allow": ["Edit"]}}')
    save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
    standing = live.load_rules(fresh=True)
    assert [(str(rule), rule.source) for rule in (*standing.allow, *standing.deny)] == [
        ("Read", "--allowedTools"),
        ("Edit", f"{project}/.claude/settings.json:1"),
        ("Bash(rm:*)", "--disallowedTools"),
    ]


@pytest.mark.spec("PRM-02", "HOM-03", "HOM-02")
def test_rules_of_all_sources_are_joined_with_their_lines(project: Path, tmp_path: Path) -> None:
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
    ).permissions.rules
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


@pytest.mark.spec("CMP-002")
def test_an_allow_rule_that_the_same_file_denies_is_unused(project: Path) -> None:
    file = project / ".claude" / "settings.local.json"
    file.write_text('{"permissions": {\n"deny": ["Read", "Bash(make:*)"],\n"allow": ["Bash(make:*)"]}}')
    settings = load_settings(cwd=project)
    assert [str(rule) for rule in settings.permissions.rules.deny] == ["Read", "Bash(make:*)"]
    assert settings.findings.untrusted_escalations


def test_two_files_may_say_the_opposite_and_deny_wins(project: Path) -> None:
    (project / ".claude" / "settings.json").write_text('{"permissions": {"allow": ["Bash(make:*)"]}}')
    (project / ".claude" / "settings.local.json").write_text('{"permissions": {"deny": ["Bash(make:*)"]}}')
    assert load_settings(cwd=project).permissions.rules.deny


RULE = AddPermissionRulesSuggestion(
    rules=(SuggestedPermissionRule(tool_name="Bash", rule_content="make:*"),), destination="localSettings"
)


@pytest.mark.spec("HOM-05")
def test_a_saved_rule_is_added_and_the_rest_of_the_file_is_unchanged(project: Path) -> None:
    file = project / ".claude" / "settings.local.json"
    file.write_text('{\n    "zzz": {"a": [1, "ü"]},\n    "permissions": {"allow": ["Read"], "odd": 1}\n}\n')
    file.chmod(0o640)
    save_permission_suggestion(RULE, file)
    save_permission_suggestion(RULE, file)
    save_permission_suggestion(
        AddDirectoriesPermissionSuggestion(directories=("/x",), destination="localSettings"), file
    )
    save_permission_suggestion(
        SetPermissionModeSuggestion(mode="acceptEdits", destination="localSettings"), file
    )
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


def test_a_missing_settings_file_is_created_and_a_broken_one_is_left_unchanged(project: Path) -> None:
    file = project / ".claude" / "settings.local.json"
    save_permission_suggestion(RULE, file)
    assert json.loads(file.read_text()) == {"permissions": {"allow": ["Bash(make:*)"]}}
    file.write_text("{broken")
    with pytest.raises(SettingsError, match="not valid JSON"):
        save_permission_suggestion(RULE, file)
    assert file.read_text() == "{broken"


def test_a_symlinked_settings_file_is_changed_at_its_target(project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    file = project / ".claude" / "settings.local.json"
    file.symlink_to(real)
    save_permission_suggestion(RULE, file)
    assert file.is_symlink()
    assert "make" in real.read_text()


def test_each_destination_has_its_file(project: Path) -> None:
    settings = load_settings(cwd=project)
    assert (
        find_settings_path("localSettings", settings, project) == project / ".claude" / "settings.local.json"
    )
    assert find_settings_path("projectSettings", settings, project) == project / ".claude" / "settings.json"
    assert find_settings_path("userSettings", settings, project) == settings.home / "settings.json"


async def test_a_change_applies_to_the_next_tool_call_of_a_running_session(project: Path) -> None:
    file = project / ".claude" / "settings.json"
    steps = iter(("none", "allow", "deny", "broken", "end"))

    def choose_reply(request: ModelRequest) -> ToolUseBlock | str:
        step = next(steps)
        if step in ("allow", "deny"):
            file.write_text(json.dumps({"permissions": {step: ["Bash(touch:*)"]}}))
            save_project_trust_decision(load_settings(cwd=project), project, trusted=True)
        elif step == "broken":
            file.write_text("{")
        return (
            "done"
            if step == "end"
            else ToolUseBlock(id=step, name="Bash", input={"command": f"touch {step}"})
        )

    async with shoal.open(cwd=project, model=ScriptedModel(choose_reply)) as session:
        events = [event async for event in session.run("go")]
    failed = {event.call: event.result.is_error for event in events if isinstance(event, ToolOutputReturned)}
    assert failed == {"none": True, "allow": False, "deny": True, "broken": True}
    notes = [event.text for event in events if isinstance(event, NoteAdded) and str(file) in event.text]
    assert len(notes) == 1
    assert f"{file}:1: not valid JSON" in notes[0]


async def test_a_settings_change_cannot_make_a_running_session_skip_permissions(project: Path) -> None:
    async with shoal.open(cwd=project, model=ScriptedModel(["hello"])) as session:
        with pytest.raises(SettingsError, match="skip_permissions="):
            session.set_mode("bypassPermissions")
        assert session.runtime.lead.permissions.mode == "default"
    async with shoal.open(cwd=project, model=ScriptedModel(["hello"]), skip_permissions=True) as session:
        session.set_mode("default")
        session.set_mode("bypassPermissions")
        assert session.runtime.lead.permissions.mode == "bypassPermissions"


@pytest.mark.spec("HOM-05")
def test_answers_saved_at_the_same_time_are_all_kept(project: Path) -> None:
    file = project / ".claude" / "settings.local.json"
    file.write_text('{"language": "French"}')
    start = threading.Barrier(4)

    def save_rules(number: int) -> None:
        start.wait(10)
        for each in range(5):
            rule = SuggestedPermissionRule(tool_name="Bash", rule_content=f"make {number}-{each}:*")
            save_permission_suggestion(
                AddPermissionRulesSuggestion(rules=(rule,), destination="localSettings"), file
            )
            save_default_model(f"ollama:{number}-{each}", file)

    with ThreadPoolExecutor(4) as threads:
        for finished in [threads.submit(save_rules, number) for number in range(4)]:
            finished.result(60)
    found = json.loads(file.read_text())
    assert len(found["permissions"]["allow"]) == 20
    assert (found["language"], found["shoal"]["model"][-2:]) == ("French", "-4")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.spec("HOM-05")
def test_a_change_by_another_program_during_an_edit_is_kept(project: Path) -> None:
    file = project / ".claude" / "settings.json"
    file.write_text('{"language": "French"}')
    changes = iter(['{"language": "German"}', '{"language": "German", "theme": "dark"}'])

    def add_plugin(raw: dict[str, object]) -> None:
        raw["enabledPlugins"] = {"p@m": True}
        if (content := next(changes, None)) is not None:
            file.write_text(content)

    edit_json_file(file, add_plugin)
    expected = {"language": "German", "theme": "dark", "enabledPlugins": {"p@m": True}}
    assert json.loads(file.read_text()) == expected

    def keep_changing(raw: dict[str, object]) -> None:
        file.write_text(json.dumps({"n": raw.get("n", 0) + 1}))  # type: ignore[operator]

    with pytest.raises(SettingsError, match="keeps changing"):
        edit_json_file(file, keep_changing)
