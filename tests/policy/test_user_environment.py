"""Permissions of users in one process: `~` and variables mean those of the user, not of the process."""

from __future__ import annotations

from pathlib import Path

import pytest
from permission_helpers import decide_call, decide_command, name_decision, parse_rules

from shoal.core.permissions.permission_changes import AddDirectoriesPermissionSuggestion
from shoal.core.user_environment import UserEnvironment, get_user_environment
from shoal.policy.permission_answers import RememberedPermissionAnswers
from shoal.policy.permission_engine import PermissionEngine
from shoal.workspaces.local_workspace import LocalWorkspace


class Tenants:
    """Two users of one process, whose own environment belongs to a third."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.homes = {name: tmp_path / name for name in ("ana", "ben", "process")}
        for home in self.homes.values():
            (home / "notes").mkdir(parents=True)
            (home / "notes" / "a").write_text("x")
        self.project = tmp_path / "project"
        self.project.mkdir()
        monkeypatch.setenv("HOME", str(self.homes["process"]))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(self.homes["process"]))

    def create_engine(self, name: str, **rules: str) -> PermissionEngine:
        user = get_user_environment({"HOME": str(self.homes[name]), "PATH": "/usr/bin:/bin"})
        return PermissionEngine(LocalWorkspace(self.project, user=user), rules=parse_rules(**rules))


@pytest.fixture
def tenants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenants:
    return Tenants(tmp_path, monkeypatch)


@pytest.mark.spec("API-09")
@pytest.mark.parametrize(
    "command", ["cat ~/notes/a", "cd && cat notes/a", "cd ~/notes; cat a", "bash -c 'cat ~/notes/a'"]
)
def test_a_rule_with_a_tilde_is_about_the_home_of_its_user(tenants: Tenants, command: str) -> None:
    for name, other in (("ana", "ben"), ("ben", "ana")):
        own, others = (f"Read(/{tenants.homes[each]}/notes/**)" for each in (name, other))
        for rule in (own, "Read(~/notes/**)"):
            assert decide_command(tenants.create_engine(name, deny=rule), command) == "deny"
        of_process = f"Read(/{tenants.homes['process']}/**)"
        engine = tenants.create_engine(name, deny=f"{others},{of_process}", allow="Bash")
        assert decide_command(engine, command) == "allow"


@pytest.mark.spec("API-09")
def test_a_file_tool_and_its_rule_mean_the_same_home(tenants: Tenants) -> None:
    ana, ben = (tenants.create_engine(name, allow="Read(~/notes/**)") for name in ("ana", "ben"))
    for engine, own, other in ((ana, "ana", "ben"), (ben, "ben", "ana")):
        assert name_decision(decide_call(engine, "Read", file_path="~/notes/a")) == "allow"
        assert (
            name_decision(decide_call(engine, "Read", file_path=f"{tenants.homes[own]}/notes/a")) == "allow"
        )
        for foreign in (other, "process"):
            path = f"{tenants.homes[foreign]}/notes/a"
            assert name_decision(decide_call(engine, "Read", file_path=path)) == "ask"


@pytest.mark.spec("API-09")
def test_the_home_of_its_user_is_never_removed_without_a_person(tenants: Tenants) -> None:
    engine = tenants.create_engine("ana", allow="Bash")
    decision = decide_call(engine, "Bash", command=f"rm -r {tenants.homes['ana']}")
    assert name_decision(decision) == "ask"
    assert decide_command(engine, f"rm -r {tenants.homes['ben']}/notes") == "allow"


@pytest.mark.spec("API-09")
def test_aliases_of_git_are_those_of_the_user(tenants: Tenants) -> None:
    (tenants.homes["ana"] / ".gitconfig").write_text("[alias]\n\tup = push\n")
    ana, ben = (tenants.create_engine(name, deny="Bash(git push:*)", allow="Bash") for name in ("ana", "ben"))
    assert decide_command(ana, "git up") == "deny"
    assert decide_command(ben, "git up") == "allow"


@pytest.mark.spec("API-09")
def test_a_granted_directory_with_a_tilde_is_in_the_home_of_the_user(tenants: Tenants) -> None:
    answers = RememberedPermissionAnswers(user=UserEnvironment({}, "/home/ana"))
    answers.add_answer(AddDirectoriesPermissionSuggestion(directories=("~/x",)))
    assert answers.directories == (Path("/home/ana/x"),)


def test_the_home_without_a_variable_is_that_of_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    account_home = str(Path.home())
    monkeypatch.setenv("HOME", "/nowhere")
    assert get_user_environment({}).home == account_home
    assert get_user_environment({}).expand_home("~/x") == f"{account_home.rstrip('/')}/x"
    assert get_user_environment().home == "/nowhere"


def test_the_temporary_directory_is_that_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert UserEnvironment(
        {"TMPDIR": str(tmp_path / "none"), "TMP": str(tmp_path)}, "/"
    ).temporary_directory == str(tmp_path)
    assert UserEnvironment({}, "/").temporary_directory == "/tmp"
