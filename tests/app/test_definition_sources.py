"""Sources of agent definitions: precedence, changes during a session, and bad files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.app.definitions.agent_catalog import AgentCatalog, load_agent_catalog, parse_agents_option
from shoal.app.definitions.agent_files import MAX_FILE_BYTES, AgentDefinitionFileCache
from shoal.core.agents.agent_definitions import AgentDefinition
from shoal.core.errors import InvalidAgentDefinition, UnknownAgentType


def format_definition(name: str, description: str = "d", extra: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{extra}---\nYou are {name}.\n"


class DefinitionPlaces:
    """A repository with a subdirectory, a home, a managed file and a plugin."""

    def __init__(self, root: Path) -> None:
        self.repository = root / "repository"
        self.cwd = self.repository / "packages" / "web"
        self.cwd.mkdir(parents=True)
        (self.repository / ".git").mkdir()
        (self.repository / ".git/HEAD").touch()
        self.home = root / "home"
        self.managed = root / "etc" / "managed-settings.json"
        self.plugin = root / "plugin"
        self.near = self.cwd / ".claude" / "agents"
        self.far = self.repository / ".claude" / "agents"
        self.user = self.home / "agents"

    def write(self, directory: Path, file: str, content: str) -> Path:
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def load_catalog(self, given: Any = None) -> AgentCatalog:
        return load_agent_catalog(
            cwd=self.cwd,
            home=self.home,
            given=parse_agents_option(given, self.cwd),
            managed=(self.managed,),
            plugins=(("tools", self.plugin),),
        )


@pytest.fixture
def places(tmp_path: Path) -> DefinitionPlaces:
    return DefinitionPlaces(tmp_path)


def list_own_names(definitions: AgentCatalog) -> list[str]:
    return [each.name for each in definitions.all() if each.source.kind != "builtin"]


@pytest.mark.spec("DEF-03", "HOM-02", "HOM-03")
def test_the_first_source_wins_and_shadowed_definitions_are_listed(places: DefinitionPlaces):
    paths = [
        places.write(places.managed.parent / "agents", "x.md", format_definition("Explore", "managed")),
        places.write(places.near, "x.md", format_definition("Explore", "near")),
        places.write(places.far, "x.md", format_definition("Explore", "far")),
        places.write(places.user, "x.md", format_definition("Explore", "user")),
    ]
    given = {"Explore": {"description": "given", "prompt": "p"}}
    order = []
    for gone in [paths[0], None, *paths[1:]]:
        definitions = places.load_catalog(given if len(order) < 2 else None)
        found = definitions.find("Explore")
        order.append((found.source.kind, found.description))
        weaker = [each.definition.source.kind for each in definitions.shadowed]
        assert weaker[-1] == "builtin"
        assert all(each.by is found for each in definitions.shadowed)
        assert definitions.problems == ()
        if gone is not None:
            gone.unlink()
    assert order == [
        ("managed", "managed"),
        ("flag", "given"),
        ("project", "near"),
        ("project", "far"),
        ("user", "user"),
    ]
    assert places.load_catalog().find("Explore").source.kind == "builtin"
    assert places.load_catalog().shadowed == ()


@pytest.mark.spec("DEF-03", "DEF-11")
def test_plugin_agents_have_its_namespace_and_follow_the_users(places: DefinitionPlaces):
    places.write(places.plugin, "lint.md", format_definition("lint"))
    places.write(places.user, "lint.md", format_definition("lint"))
    definitions = places.load_catalog()
    assert list_own_names(definitions) == ["lint", "tools:lint"]
    assert definitions.find("tools:lint").source.kind == "plugin"
    kinds = [each.source.kind for each in definitions.all()]
    assert kinds[:3] == ["user", "plugin", "builtin"]
    places.write(places.plugin, "lint.md", format_definition("lint", extra="maxTurns: x\n"))
    with pytest.raises(InvalidAgentDefinition, match="maxTurns"):
        definitions.find("tools:lint")
    assert definitions.find("lint").source.kind == "user"


@pytest.mark.spec("CMP-082")
def test_only_markdown_files_are_read_including_subdirectories(places: DefinitionPlaces):
    places.write(places.near, "deep/er/a.md", format_definition("a"))
    for other in ("b.txt", ".hidden.md", ".git/c.md", "d.md~"):
        places.write(places.near, other, format_definition("other"))
    assert list_own_names(places.load_catalog()) == ["a"]


def test_directories_above_the_repository_do_not_belong_to_the_project(places: DefinitionPlaces):
    places.write(places.repository.parent / ".claude" / "agents", "x.md", format_definition("outside"))
    assert list_own_names(places.load_catalog()) == []
    (places.repository / ".git/HEAD").unlink()
    places.write(places.far, "x.md", format_definition("above"))
    places.write(places.near, "x.md", format_definition("here"))
    assert list_own_names(places.load_catalog()) == ["here"]


def test_a_home_inside_the_project_counts_as_the_users(places: DefinitionPlaces):
    places.write(places.cwd / ".claude" / "agents", "x.md", format_definition("x"))
    definitions = load_agent_catalog(cwd=places.cwd, home=places.cwd / ".claude", managed=())
    assert definitions.find("x").source.kind == "user"
    assert definitions.shadowed == ()


def test_agents_can_be_given_as_a_json_file(places: DefinitionPlaces):
    path = places.write(places.cwd, "agents.json", '{"a": {"description": "d", "prompt": "p"}}')
    assert places.load_catalog("agents.json").find("a").source.path == path
    path.write_text('{"a": {"description": "d",\n "prompt": "p",\n "tools": 1}}')
    with pytest.raises(InvalidAgentDefinition, match=r"agents\.json:3: a\.tools: "):
        places.load_catalog("agents.json")
    with pytest.raises(InvalidAgentDefinition, match=r"--agents: No such file or directory: .*Pass JSON"):
        places.load_catalog("nothing.json")


def advance_clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the clock instead of the change time, which only the system can set."""
    then = path.stat().st_ctime_ns + 10_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: then)


def change_file(path: Path) -> None:
    path.write_text(format_definition("a", "changed"))


def replace_file(path: Path) -> None:
    other = path.with_suffix(".tmp")
    other.write_text(format_definition("a", "changed"))
    other.replace(path)


def change_with_equal_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_text(path.read_text().replace("description: d", "description: c"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.spec("SKL-02")
@pytest.mark.parametrize("long_ago", [True, False])
@pytest.mark.parametrize("how", [change_file, replace_file, change_with_equal_size_and_time])
def test_a_changed_file_is_seen_at_the_next_lookup(
    places: DefinitionPlaces, how: Callable[[Path], None], long_ago: bool, monkeypatch: pytest.MonkeyPatch
):
    path = places.write(places.near, "a.md", format_definition("a"))
    if long_ago:
        advance_clock(path, monkeypatch)
    definitions = places.load_catalog()
    before = definitions.find("a")
    how(path)
    assert definitions.find("a").description != before.description


def test_new_and_removed_files_and_directories_are_seen_at_the_next_lookup(places: DefinitionPlaces):
    definitions = places.load_catalog()
    assert list_own_names(definitions) == []
    for number in range(20):
        places.write(places.near, f"{number:02}.md", format_definition(f"a{number}"))
        assert list_own_names(definitions) == [f"a{each}" for each in range(number + 1)]
    places.write(places.near, "below/x.md", format_definition("x"))
    assert "x" in list_own_names(definitions)
    places.write(places.near, "below/y.md", format_definition("y"))
    assert "y" in list_own_names(definitions)
    (places.near / "below" / "x.md").unlink()
    assert "x" not in list_own_names(definitions)
    places.write(places.user, "z.md", format_definition("z"))
    assert definitions.find("z")


def test_unchanged_files_are_not_read_again(places: DefinitionPlaces, monkeypatch: pytest.MonkeyPatch):
    path = places.write(places.near, "a.md", format_definition("a"))
    folder = AgentDefinitionFileCache(places.near, "project")
    advance_clock(path, monkeypatch)
    assert folder.refresh()
    (first,) = folder.results
    assert not folder.refresh()
    assert folder.results[0] is first


def test_recently_written_files_are_read_again(places: DefinitionPlaces, monkeypatch: pytest.MonkeyPatch):
    """A second change within one tick of the file system's clock has the same time."""
    path = places.write(places.near, "a.md", format_definition("a"))
    now = path.stat().st_ctime_ns
    monkeypatch.setattr("time.time_ns", lambda: now)
    folder = AgentDefinitionFileCache(places.near, "project")
    folder.refresh()
    (first,) = folder.results
    assert not folder.refresh()
    assert folder.results[0] is not first


def test_of_two_files_with_one_name_the_first_path_wins_and_both_are_reported(places: DefinitionPlaces):
    second = places.write(places.near, "z/a.md", format_definition("a", "second"))
    first = places.write(places.near, "b.md", format_definition("a", "first"))
    definitions = places.load_catalog()
    assert definitions.find("a").description == "first"
    (problem,) = definitions.problems
    assert (problem.source.path, problem.field) == (second, "name")
    assert str(first) in str(problem)
    assert str(second) in str(problem)


@pytest.mark.spec("DEF-02")
def test_a_bad_file_is_reported_and_hides_no_other(places: DefinitionPlaces):
    places.write(places.near, "good.md", format_definition("good"))
    bad = places.write(places.near, "bad.md", format_definition("worse", extra="maxTurns: none\n"))
    definitions = places.load_catalog()
    assert list_own_names(definitions) == ["good"]
    assert [str(problem).partition(": expected")[0] for problem in definitions.problems] == [
        f"{bad}:4: maxTurns"
    ]
    with pytest.raises(InvalidAgentDefinition) as error:
        definitions.find("worse")
    assert (error.value.path, error.value.line, error.value.field) == (bad, 4, "maxTurns")
    bad.write_text(format_definition("worse"))
    assert definitions.find("worse").source.path == bad
    assert definitions.problems == ()


@pytest.mark.spec("DEF-02")
@pytest.mark.parametrize("field", ["tools", "disallowedTools"])
def test_an_invalid_rule_pattern_is_a_bad_value(places: DefinitionPlaces, field: str):
    path = places.write(
        places.near, "a.md", format_definition("a", extra=f"{field}: Read, Bash(git:* push)\n")
    )
    with pytest.raises(InvalidAgentDefinition, match=r"`:\*` is allowed only at the end") as error:
        places.load_catalog().find("a")
    assert (error.value.path, error.value.line, error.value.field) == (path, 4, field)
    assert str(error.value).count(field) == 1, "its place is told once"
    with pytest.raises(InvalidAgentDefinition, match=r"--agents: a\.tools: .*is empty"):
        places.load_catalog({"a": {"description": "d", "prompt": "p", "tools": ["Bash( )"]}})


def test_a_bad_file_is_not_replaced_by_a_weaker_agent_of_its_name(places: DefinitionPlaces):
    places.write(places.near, "Explore.md", "broken")
    definitions = places.load_catalog()
    with pytest.raises(InvalidAgentDefinition, match=r"Explore\.md:1: there is no front matter"):
        definitions.find("Explore")
    assert [each.definition.source.kind for each in definitions.shadowed] == ["builtin"]
    assert definitions.find("Plan").source.kind == "builtin"
    # In one place the good one of that name is meant.
    places.write(places.near, "other.md", format_definition("Explore"))
    assert definitions.find("Explore").source.kind == "project"


def test_unreadable_definition_files_are_reported_without_hanging(places: DefinitionPlaces):
    places.write(places.near, "good.md", format_definition("good"))
    places.write(places.near, "huge.md", "x" * (MAX_FILE_BYTES + 1))
    places.write(places.near, "empty.md", "")
    places.write(places.near, "nul.md", format_definition("nul") + "\0")
    (places.near / "latin.md").write_bytes(b"---\nname: caf\xe9\n---\n")
    (places.near / "broken-link.md").symlink_to("nowhere")
    (places.near / "directory.md").mkdir()
    os.mkfifo(places.near / "pipe.md")
    (places.near / "round").symlink_to(places.near)
    definitions = places.load_catalog()
    assert list_own_names(definitions) == ["good"]
    problems = {problem.name: problem.what for problem in definitions.problems}
    assert problems.keys() == {"huge", "empty", "nul", "latin", "broken-link", "directory", "pipe"}
    assert "1,000,001 bytes" in problems["huge"]
    assert "UTF-8" in problems["latin"]
    assert "not a file" in problems["pipe"]


@pytest.mark.spec("CMP-120")
def test_prose_with_bytes_of_another_encoding_is_used_but_a_damaged_tool_list_is_not(
    places: DefinitionPlaces,
):
    places.near.mkdir(parents=True, exist_ok=True)
    text = format_definition("waiter").replace("description: ", "description: café ") + "Serve café."
    assert "café" in text.partition("Serve")[0]
    for name in ("one", "two"):
        renamed = text.replace("name: waiter", f"name: {name}")
        (places.near / f"{name}.md").write_bytes(renamed.encode("latin-1"))
    narrow = format_definition("narrow").replace("---\n", "---\ndisallowedTools: Bäsh\n", 1)
    (places.near / "narrow.md").write_bytes(narrow.encode("latin-1"))
    definitions = places.load_catalog()
    assert list_own_names(definitions) == ["one", "two"]
    assert "caf\ufffd" in definitions.find("one").description
    assert definitions.find("one").prompt.endswith("Serve caf\ufffd.")
    problem, note = definitions.describe_agent_file_problems()
    assert "narrow.md:2: disallowedTools: not UTF-8 text" in problem
    assert note.startswith(f"2 agent files, such as {places.near / 'one.md'}, are not UTF-8 text")


def test_an_agents_directory_that_is_a_file_is_reported(places: DefinitionPlaces):
    places.write(places.cwd / ".claude", "agents", "x")
    assert [problem.what for problem in places.load_catalog().problems] == ["cannot be read: Not a directory"]


def test_an_unknown_name_error_lists_known_names_and_suggests_one(places: DefinitionPlaces):
    places.write(places.plugin, "lint.md", format_definition("lint"))
    definitions = places.load_catalog()
    for name, meant in (
        ("explore", "Explore"),
        ("general_purpose", "general-purpose"),
        ("lint", "tools:lint"),
    ):
        with pytest.raises(UnknownAgentType) as error:
            definitions.find(name)
        assert error.value.similar[0] == meant
        assert f"Did you mean {meant}?" in str(error.value)
    with pytest.raises(UnknownAgentType) as error:
        definitions.find("zzz")
    assert error.value.similar == ()
    assert set(error.value.available) == {each.name for each in definitions.all()}
    assert "statusline-setup" in str(error.value)


def test_the_catalog_collects_the_warnings_of_all_files(places: DefinitionPlaces):
    path = places.write(places.near, "a.md", format_definition("a", extra="colour: red\n"))
    (warning,) = places.load_catalog().warnings
    assert warning.startswith(f"{path}:4: colour: ")


@pytest.mark.parametrize(
    ("directory", "trusted"), [("managed", True), ("near", False), ("user", True), ("plugin", False)]
)
def test_definitions_from_untrusted_sources_are_not_trusted(
    places: DefinitionPlaces, directory: str, trusted: bool
):
    where = {"managed": places.managed.parent / "agents", "plugin": places.plugin}
    places.write(where.get(directory) or getattr(places, directory), "a.md", format_definition("a"))
    found: AgentDefinition = places.load_catalog().all()[0]
    assert found.source.is_trusted is trusted
