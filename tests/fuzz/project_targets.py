"""Project files, which may come from anyone: whatever they hold, a session starts or names the invalid file.

None of them widens what the user allows, and none hides another file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from shoal.app.definitions.agent_files import AgentDefinitionFileCache, DefinitionFileCache
from shoal.app.definitions.instructions import load_instructions
from shoal.app.definitions.plugin_files import read_plugin
from shoal.app.hooks.hook_sources import load_configured_hooks, read_agent_definition_hooks
from shoal.app.settings.mcp_files import load_mcp_servers
from shoal.app.settings.settings import Settings, load_settings
from shoal.app.skills.skill_files import create_skill_cache, create_slash_command_cache
from shoal.app.teams.team_templates import read_team_template_file
from shoal.core.agents.agent_definitions import DefinitionProblem
from shoal.core.errors import SettingsError

from . import seed_documents
from .fuzz_target import FuzzTarget

OUTSIDE_TEXT = "only outside of the project"


def _run_in_project(check: Callable[[Path, Path, bytes], None]) -> Callable[[bytes], None]:
    def check_input(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="shoal-fuzz-") as place:
            home, project = Path(place, "home"), Path(place, "project")
            for directory in (home, project / ".git", project / ".claude"):
                directory.mkdir(parents=True)
            Path(place, "outside.txt").write_text(OUTSIDE_TEXT)
            check(home, project, data)

    return check_input


def _load_settings(home: Path, project: Path) -> Settings | None:
    """Load the settings, or return None if the error names a file of the project."""
    try:
        settings = load_settings(cwd=project, environ={"SHOAL_HOME": str(home)}, managed=())
    except SettingsError as error:
        told = str(error)
    else:
        return settings
    assert str(project) in told
    return None


def _check_settings(home: Path, project: Path, data: bytes) -> None:
    alone = _load_settings(home, project)
    assert alone is not None
    for name in (".claude/settings.json", ".claude/settings.local.json", ".mcp.json"):
        path = project / name
        path.write_bytes(data)
        settings = _load_settings(home, project)
        path.unlink()
        if settings is None:
            continue
        assert settings.access == alone.access
        assert settings.permissions.entries.allow == ()
        assert settings.permissions.entries.default_mode in (None, "plan", "default", "dontAsk")
        assert settings.own.sandbox.writable == ()
        assert settings.own.telemetry == alone.own.telemetry
        assert settings.own.unattended_allow == ()
        assert settings.own.channels == ()
        assert load_mcp_servers(settings, cwd=project).servers == ()
        assert load_configured_hooks(settings).hooks == ()


def _check_broken_file(
    files: DefinitionFileCache, broken: Path, valid: Path, data: bytes, good: bytes
) -> None:  # type: ignore[type-arg]
    for path, content in ((broken, data), (valid, good)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    files.refresh()
    found = files.results
    assert len(found) == 2
    assert any(not isinstance(each, DefinitionProblem) for each in found)
    for each in found:
        assert not isinstance(each, DefinitionProblem) or str(broken) in str(each)


def _check_agents(home: Path, project: Path, data: bytes) -> None:
    root = project / ".claude" / "agents"
    files = AgentDefinitionFileCache(root, "project")
    _check_broken_file(
        files, root / "x.md", root / "beside.md", data, seed_documents.get_seeds("definition")[1]
    )
    settings = _load_settings(home, project)
    assert settings is not None
    for found in files.results:
        if not isinstance(found, DefinitionProblem):
            read_agent_definition_hooks(found.definition, settings)


def _check_skills(_: Path, project: Path, data: bytes) -> None:
    root = project / ".claude" / "skills"
    _check_broken_file(
        create_skill_cache(root, "project"),
        root / "x/SKILL.md",
        root / "pdf/SKILL.md",
        data,
        seed_documents.get_seeds("skill")[0],
    )
    root = project / ".claude" / "commands"
    _check_broken_file(
        create_slash_command_cache(root, "project"),
        root / "x.md",
        root / "beside.md",
        data,
        seed_documents.get_seeds("command")[0],
    )


def _check_templates(_: Path, project: Path, data: bytes) -> None:
    for name in ("a.md", "a.toml"):
        path = project / name
        path.write_bytes(data)
        found = read_team_template_file(path)
        assert (found.template is None) == (found.problem is not None)


def _check_plugin(_: Path, project: Path, data: bytes) -> None:
    manifest = project / ".claude-plugin" / "plugin.json"
    manifest.parent.mkdir()
    manifest.write_bytes(data)
    (project / "hooks").mkdir()
    (project / "hooks" / "hooks.json").write_bytes(data)
    (project / ".mcp.json").write_bytes(data)
    plugin = read_plugin(project, offered="flag", origin="a test")
    for place in (*getattr(plugin, "agents", ()), *getattr(plugin, "skills", ())):
        assert place.resolve().is_relative_to(project.resolve())


def _check_instructions(home: Path, project: Path, data: bytes) -> None:
    (project / "CLAUDE.md").write_bytes(data)
    (project / "beside.md").write_text("@CLAUDE.md @../outside.txt")
    read = load_instructions(cwd=project, home=home, is_hidden=lambda _: False)
    assert OUTSIDE_TEXT not in read.text


_IMPORTS = b"# A\n@beside.md\n@../outside.txt @~/x @/etc/hostname\n```\n@no\n```\n`@no` x@y\n"
_TEMPLATES = (*seed_documents.get_seeds("template"), *seed_documents.get_seeds("toml-template"))
TARGETS = (
    FuzzTarget(
        "project-settings",
        _run_in_project(_check_settings),
        (),
        (*seed_documents.get_seeds("settings"), *seed_documents.get_seeds("mcp")),
    ),
    FuzzTarget("project-agents", _run_in_project(_check_agents), (), seed_documents.get_seeds("definition")),
    FuzzTarget(
        "project-skills",
        _run_in_project(_check_skills),
        (),
        (*seed_documents.get_seeds("skill"), *seed_documents.get_seeds("command")),
    ),
    FuzzTarget(
        "project-templates",
        _run_in_project(_check_templates),
        (),
        (*seed_documents.get_seeds("template"), *seed_documents.get_seeds("toml-template")),
    ),
    FuzzTarget("project-plugin", _run_in_project(_check_plugin), (), seed_documents.get_seeds("plugin")),
    FuzzTarget("project-instructions", _run_in_project(_check_instructions), (), (_IMPORTS,)),
)
