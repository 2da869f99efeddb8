"""Project files, which may come from anyone: whatever they hold, a session starts or names the invalid file.

None of them widens what the person allows, and none hides another file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from shoal.app.definitions.files import Files, Folder
from shoal.app.definitions.instructions import instructions_for
from shoal.app.definitions.plugin_files import read_plugin
from shoal.app.hooks.sources import configured_hooks, hooks_of
from shoal.app.settings.mcp_files import configured
from shoal.app.settings.settings import Settings, load_settings
from shoal.app.skills.files import command_files, skill_files
from shoal.app.teams.templates import read_file
from shoal.core.definitions import Problem
from shoal.core.errors import SettingsError

from . import seeds
from .door import Door

OUTSIDE = "only outside of the project"


def _in_a_project(work: Callable[[Path, Path, bytes], None]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="shoal-fuzz-") as place:
            home, project = Path(place, "home"), Path(place, "project")
            for directory in (home, project / ".git", project / ".claude"):
                directory.mkdir(parents=True)
            Path(place, "outside.txt").write_text(OUTSIDE)
            work(home, project, data)

    return read


def _loaded(home: Path, project: Path) -> Settings | None:
    """Load the settings, or return None if the error names a file of the project."""
    try:
        settings = load_settings(cwd=project, environ={"SHOAL_HOME": str(home)}, managed=())
    except SettingsError as error:
        told = str(error)
    else:
        return settings
    assert str(project) in told
    return None


def _settings(home: Path, project: Path, data: bytes) -> None:
    alone = _loaded(home, project)
    assert alone is not None
    for name in (".claude/settings.json", ".claude/settings.local.json", ".mcp.json"):
        path = project / name
        path.write_bytes(data)
        settings = _loaded(home, project)
        path.unlink()
        if settings is None:
            continue
        assert settings.access == alone.access
        assert settings.permissions.allow == ()
        assert settings.permissions.default_mode in (None, "plan", "default", "dontAsk")
        assert settings.own.sandbox.writable == ()
        assert settings.own.telemetry == alone.own.telemetry
        assert settings.own.unattended_allow == ()
        assert settings.own.channels == ()
        assert configured(settings, cwd=project).servers == ()
        assert configured_hooks(settings).hooks == ()


def _is_beside(files: Files, broken: Path, whole: Path, data: bytes, good: bytes) -> None:  # type: ignore[type-arg]
    for path, content in ((broken, data), (whole, good)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    files.look()
    found = files.found
    assert len(found) == 2
    assert any(not isinstance(each, Problem) for each in found)
    for each in found:
        assert not isinstance(each, Problem) or str(broken) in str(each)


def _agents(home: Path, project: Path, data: bytes) -> None:
    root = project / ".claude" / "agents"
    files = Folder(root, "project")
    _is_beside(files, root / "x.md", root / "beside.md", data, seeds.of("definition")[1])
    settings = _loaded(home, project)
    assert settings is not None
    for found in files.found:
        if not isinstance(found, Problem):
            hooks_of(found.definition, settings)


def _skills(_: Path, project: Path, data: bytes) -> None:
    root = project / ".claude" / "skills"
    _is_beside(
        skill_files(root, "project"), root / "x/SKILL.md", root / "pdf/SKILL.md", data, seeds.of("skill")[0]
    )
    root = project / ".claude" / "commands"
    _is_beside(
        command_files(root, "project"), root / "x.md", root / "beside.md", data, seeds.of("command")[0]
    )


def _templates(_: Path, project: Path, data: bytes) -> None:
    for name in ("a.md", "a.toml"):
        path = project / name
        path.write_bytes(data)
        found = read_file(path)
        assert (found.template is None) == (found.flaw is not None)


def _plugin(_: Path, project: Path, data: bytes) -> None:
    manifest = project / ".claude-plugin" / "plugin.json"
    manifest.parent.mkdir()
    manifest.write_bytes(data)
    (project / "hooks").mkdir()
    (project / "hooks" / "hooks.json").write_bytes(data)
    (project / ".mcp.json").write_bytes(data)
    plugin = read_plugin(project, offered="flag", origin="a test")
    for place in (*getattr(plugin, "agents", ()), *getattr(plugin, "skills", ())):
        assert place.resolve().is_relative_to(project.resolve())


def _instructions(home: Path, project: Path, data: bytes) -> None:
    (project / "CLAUDE.md").write_bytes(data)
    (project / "beside.md").write_text("@CLAUDE.md @../outside.txt")
    read = instructions_for(cwd=project, home=home, hidden=lambda _: False)
    assert OUTSIDE not in read.text


_IMPORTS = b"# A\n@beside.md\n@../outside.txt @~/x @/etc/hostname\n```\n@no\n```\n`@no` x@y\n"
_TEMPLATES = (*seeds.of("template"), *seeds.of("toml-template"))
DOORS = (
    Door("project-settings", _in_a_project(_settings), (), (*seeds.of("settings"), *seeds.of("mcp"))),
    Door("project-agents", _in_a_project(_agents), (), seeds.of("definition")),
    Door("project-skills", _in_a_project(_skills), (), (*seeds.of("skill"), *seeds.of("command"))),
    Door(
        "project-templates",
        _in_a_project(_templates),
        (),
        (*seeds.of("template"), *seeds.of("toml-template")),
    ),
    Door("project-plugin", _in_a_project(_plugin), (), seeds.of("plugin")),
    Door("project-instructions", _in_a_project(_instructions), (), (_IMPORTS,)),
)
