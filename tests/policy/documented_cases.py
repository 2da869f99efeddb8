"""Calls with the decision that the documentation promises, and the project that they are decided in."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec
from corpus_project import create_corpus_project, read_corpus_lines
from permission_helpers import create_engine, decide_call, name_decision

from shoal.app.reports.permission_report import create_permission_engine
from shoal.app.settings.settings import load_settings
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.policy.mode_inheritance import narrow_child_permission_mode
from shoal.policy.permission_engine import PermissionEngine
from shoal.workspaces.local_workspace import LocalWorkspace

_FILES = ("notes.txt", "deploy.pem", "server.key", "secrets/notes.txt", "tool.py", "src/.gitkeep")
_LINKS = {
    "out": "../outside",
    "linkfile": "../outside/key",
    "gitlink": ".git",
    "secretlink": "secrets",
    "envlink": ".env",
    "src/outlink": "../../outside",
    "docs/link": "../src",
}


class DocumentedCase(NamedTuple):
    """One call under some settings, with the decision that it must get."""

    setting: str
    expected: str
    tool: str
    arguments: dict[str, Any]


def create_case_project(directory: Path) -> Path:
    project = create_corpus_project(directory)
    for name in _FILES:
        (project / name).write_text("x\n")
    with tarfile.open(project / "a.tar", "w") as archive:
        archive.add(project / "notes.txt", "notes.txt")
    for name, target in _LINKS.items():
        (project / name).symlink_to(target)
    (directory / "tree").mkdir()
    (directory / "tree/main").symlink_to(project)
    return project


def iter_documented_cases(name: str, project: Path) -> Iterator[DocumentedCase]:
    setting = ""
    for line in read_corpus_lines(name):
        if line.startswith("setting:"):
            setting = line.removeprefix("setting:").strip()
            continue
        expected, tool, argument = (*line.split(" ", 2), "")[:3]
        argument = argument.replace("PROJECT", str(project)).replace(
            "SHOAL_HOME", str(project.parent / "home")
        )
        is_text = tool == "Bash" and not argument.startswith('{"') and argument != "{}"
        yield DocumentedCase(
            setting, expected, tool, {"command": argument} if is_text else json.loads(argument)
        )


def create_case_engine(project: Path, setting: str) -> PermissionEngine:
    fields = dict(each.split("=", 1) for each in setting.split(" ; "))
    name = fields.pop("mode")
    mode: PermissionMode = next(each for each in get_args(PermissionMode) if each == name)
    return create_engine(project, mode, home=project.parent / "home", **fields)


def is_as_documented(expected: str, decision: str) -> bool:
    return decision != "allow" if expected == "guard" else decision == expected


def decide_case(engine: PermissionEngine, case: DocumentedCase) -> str:
    return name_decision(decide_call(engine, case.tool, **case.arguments))


class SettingsCase(msgspec.Struct, forbid_unknown_fields=True):
    """One call under settings files of an untrusted project, perhaps by a child or in a worktree."""

    expected: str
    tool: str
    arguments: dict[str, Any]
    user: dict[str, Any] = {}
    project: dict[str, Any] = {}
    local: dict[str, Any] = {}
    given: dict[str, Any] = {}
    children: list[dict[str, Any]] = []
    worktree: bool = False


def load_settings_cases(name: str) -> list[SettingsCase]:
    return [msgspec.json.decode(line, type=SettingsCase) for line in read_corpus_lines(name)]


def decide_settings_case(case: SettingsCase, project: Path) -> str:
    """Decide the call as a session would that reads these settings files."""
    home = project.parent / "home"
    files = {
        home / "settings.json": case.user,
        project / ".claude/settings.json": case.project,
        project / ".claude/settings.local.json": case.local,
        project.parent / "given.json": case.given,
    }
    for file, content in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content))
    environ = {"SHOAL_HOME": str(home)}
    given = str(project.parent / "given.json")
    settings = load_settings(cwd=project, environ=environ, given=given, managed=())
    engine = create_permission_engine(settings, project)
    tree = project.parent / "tree"
    for child in case.children:
        mode = narrow_child_permission_mode(engine.mode, child.get("mode"), can_bypass=engine.can_bypass)
        workspace = LocalWorkspace(tree if case.worktree else project)
        main = project if case.worktree else None
        engine = engine.create_child(
            workspace, mode=mode, allowed_tools=child.get("tools", ()), main_checkout=main
        )
    arguments = json.loads(json.dumps(case.arguments).replace("PROJECT", str(project)))
    return name_decision(decide_call(engine, case.tool, **arguments))
