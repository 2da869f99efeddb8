"""Where agents come from: the order of the sources, changes while a session runs, and files that are bad."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.app.definitions.definitions import Definitions, definitions_for, given_definitions
from shoal.app.definitions.files import LARGEST, Folder
from shoal.core.definitions import Definition
from shoal.core.errors import BadDefinition, UnknownAgent


def text(name: str, description: str = "d", extra: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{extra}---\nYou are {name}.\n"


class Place:
    """A repository with a directory below it, a home, a managed file and a plug-in."""

    def __init__(self, root: Path) -> None:
        self.repository = root / "repository"
        self.cwd = self.repository / "packages" / "web"
        self.cwd.mkdir(parents=True)
        (self.repository / ".git").mkdir()
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

    def definitions(self, given: Any = None) -> Definitions:
        return definitions_for(
            cwd=self.cwd,
            home=self.home,
            given=given_definitions(given, self.cwd),
            managed=(self.managed,),
            plugins=(("tools", self.plugin),),
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def own(definitions: Definitions) -> list[str]:
    return [each.name for each in definitions.all() if each.source.kind != "builtin"]


@pytest.mark.spec("DEF-03", "HOM-02", "HOM-03")
def test_of_two_sources_the_first_wins_and_the_rest_is_told(place: Place):
    paths = [
        place.write(place.managed.parent / "agents", "x.md", text("Explore", "managed")),
        place.write(place.near, "x.md", text("Explore", "near")),
        place.write(place.far, "x.md", text("Explore", "far")),
        place.write(place.user, "x.md", text("Explore", "user")),
    ]
    given = {"Explore": {"description": "given", "prompt": "p"}}
    order = []
    for gone in [paths[0], None, *paths[1:]]:
        definitions = place.definitions(given if len(order) < 2 else None)
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
    assert place.definitions().find("Explore").source.kind == "builtin"
    assert place.definitions().shadowed == ()


@pytest.mark.spec("DEF-03", "DEF-11")
def test_a_plug_ins_agents_carry_its_namespace_and_come_after_the_persons(place: Place):
    place.write(place.plugin, "lint.md", text("lint"))
    place.write(place.user, "lint.md", text("lint"))
    definitions = place.definitions()
    assert own(definitions) == ["lint", "tools:lint"]
    assert definitions.find("tools:lint").source.kind == "plugin"
    kinds = [each.source.kind for each in definitions.all()]
    assert kinds[:3] == ["user", "plugin", "builtin"]
    place.write(place.plugin, "lint.md", text("lint", extra="maxTurns: x\n"))
    with pytest.raises(BadDefinition, match="maxTurns"):
        definitions.find("tools:lint")
    assert definitions.find("lint").source.kind == "user"


def test_subdirectories_are_read_and_only_markdown_is(place: Place):
    place.write(place.near, "deep/er/a.md", text("a"))
    for other in ("b.txt", ".hidden.md", ".git/c.md", "d.md~"):
        place.write(place.near, other, text("other"))
    assert own(place.definitions()) == ["a"]


def test_directories_above_the_repository_are_none_of_the_projects(place: Place):
    place.write(place.repository.parent / ".claude" / "agents", "x.md", text("outside"))
    assert own(place.definitions()) == []
    (place.repository / ".git").rmdir()
    place.write(place.far, "x.md", text("above"))
    place.write(place.near, "x.md", text("here"))
    assert own(place.definitions()) == ["here"]


def test_a_home_inside_the_project_is_the_users_and_not_the_projects(place: Place):
    place.write(place.cwd / ".claude" / "agents", "x.md", text("x"))
    definitions = definitions_for(cwd=place.cwd, home=place.cwd / ".claude", managed=())
    assert definitions.find("x").source.kind == "user"
    assert definitions.shadowed == ()


def test_a_file_with_json_can_be_given_too(place: Place):
    path = place.write(place.cwd, "agents.json", '{"a": {"description": "d", "prompt": "p"}}')
    assert place.definitions("agents.json").find("a").source.path == path
    path.write_text('{"a": {"description": "d",\n "prompt": "p",\n "tools": 1}}')
    with pytest.raises(BadDefinition, match=r"agents\.json:3: a\.tools: "):
        place.definitions("agents.json")
    with pytest.raises(BadDefinition, match=r"--agents: No such file or directory: .*JSON is expected"):
        place.definitions("nothing.json")


def later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a change is the system's to set, so the clock goes on instead."""
    then = path.stat().st_ctime_ns + 10_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: then)


def change(path: Path) -> None:
    path.write_text(text("a", "changed"))


def replace(path: Path) -> None:
    other = path.with_suffix(".tmp")
    other.write_text(text("a", "changed"))
    other.replace(path)


def same_size_and_time(path: Path) -> None:
    before = path.stat()
    path.write_text(path.read_text().replace("description: d", "description: c"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.spec("SKL-02")
@pytest.mark.parametrize("long_ago", [True, False])
@pytest.mark.parametrize("how", [change, replace, same_size_and_time])
def test_a_changed_file_is_seen_at_the_next_question(
    place: Place, how: Callable[[Path], None], long_ago: bool, monkeypatch: pytest.MonkeyPatch
):
    path = place.write(place.near, "a.md", text("a"))
    if long_ago:
        later(path, monkeypatch)
    definitions = place.definitions()
    before = definitions.find("a")
    how(path)
    assert definitions.find("a").description != before.description


def test_new_and_removed_files_and_directories_are_seen_at_the_next_question(place: Place):
    definitions = place.definitions()
    assert own(definitions) == []
    for number in range(20):
        place.write(place.near, f"{number:02}.md", text(f"a{number}"))
        assert own(definitions) == [f"a{each}" for each in range(number + 1)]
    place.write(place.near, "below/x.md", text("x"))
    assert "x" in own(definitions)
    place.write(place.near, "below/y.md", text("y"))
    assert "y" in own(definitions)
    (place.near / "below" / "x.md").unlink()
    assert "x" not in own(definitions)
    place.write(place.user, "z.md", text("z"))
    assert definitions.find("z")


def test_what_has_settled_is_not_read_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    path = place.write(place.near, "a.md", text("a"))
    folder = Folder(place.near, "project")
    later(path, monkeypatch)
    assert folder.look()
    (first,) = folder.found
    assert not folder.look()
    assert folder.found[0] is first


def test_what_was_written_just_now_is_read_again(place: Place, monkeypatch: pytest.MonkeyPatch):
    """A second change within one tick of the file system's clock leaves the same time behind."""
    path = place.write(place.near, "a.md", text("a"))
    now = path.stat().st_ctime_ns
    monkeypatch.setattr("time.time_ns", lambda: now)
    folder = Folder(place.near, "project")
    folder.look()
    (first,) = folder.found
    assert not folder.look()
    assert folder.found[0] is not first


def test_of_two_files_with_one_name_the_first_by_path_wins_and_both_are_named(place: Place):
    second = place.write(place.near, "z/a.md", text("a", "second"))
    first = place.write(place.near, "b.md", text("a", "first"))
    definitions = place.definitions()
    assert definitions.find("a").description == "first"
    (problem,) = definitions.problems
    assert (problem.source.path, problem.field) == (second, "name")
    assert str(first) in str(problem)
    assert str(second) in str(problem)


@pytest.mark.spec("DEF-02")
def test_a_bad_file_is_named_and_hides_no_other(place: Place):
    place.write(place.near, "good.md", text("good"))
    bad = place.write(place.near, "bad.md", text("worse", extra="maxTurns: none\n"))
    definitions = place.definitions()
    assert own(definitions) == ["good"]
    assert [str(problem).partition(": a whole")[0] for problem in definitions.problems] == [
        f"{bad}:4: maxTurns"
    ]
    with pytest.raises(BadDefinition) as error:
        definitions.find("worse")
    assert (error.value.path, error.value.line, error.value.field) == (bad, 4, "maxTurns")
    bad.write_text(text("worse"))
    assert definitions.find("worse").source.path == bad
    assert definitions.problems == ()


@pytest.mark.spec("DEF-02")
@pytest.mark.parametrize("field", ["tools", "disallowedTools"])
def test_a_pattern_that_no_rule_can_hold_is_a_bad_value(place: Place, field: str):
    path = place.write(place.near, "a.md", text("a", extra=f"{field}: Read, Bash(git:* push)\n"))
    with pytest.raises(BadDefinition, match=r"`:\*` stands at its end alone") as error:
        place.definitions().find("a")
    assert (error.value.path, error.value.line, error.value.field) == (path, 4, field)
    assert str(error.value).count(field) == 1, "its place is told once"
    with pytest.raises(BadDefinition, match=r"--agents: a\.tools: .*is empty"):
        place.definitions({"a": {"description": "d", "prompt": "p", "tools": ["Bash( )"]}})


def test_a_bad_file_is_not_replaced_by_a_weaker_agent_of_its_name(place: Place):
    place.write(place.near, "Explore.md", "broken")
    definitions = place.definitions()
    with pytest.raises(BadDefinition, match=r"Explore\.md:1: there is no front matter"):
        definitions.find("Explore")
    assert [each.definition.source.kind for each in definitions.shadowed] == ["builtin"]
    assert definitions.find("Plan").source.kind == "builtin"
    # In one place the good one of that name is meant.
    place.write(place.near, "other.md", text("Explore"))
    assert definitions.find("Explore").source.kind == "project"


def test_files_that_cannot_be_definitions_are_told_and_nothing_hangs(place: Place):
    place.write(place.near, "good.md", text("good"))
    place.write(place.near, "huge.md", "x" * (LARGEST + 1))
    place.write(place.near, "empty.md", "")
    place.write(place.near, "nul.md", text("nul") + "\0")
    (place.near / "latin.md").write_bytes(b"---\nname: caf\xe9\n---\n")
    (place.near / "broken-link.md").symlink_to("nowhere")
    (place.near / "directory.md").mkdir()
    os.mkfifo(place.near / "pipe.md")
    (place.near / "round").symlink_to(place.near)
    definitions = place.definitions()
    assert own(definitions) == ["good"]
    told = {problem.name: problem.what for problem in definitions.problems}
    assert told.keys() == {"huge", "empty", "nul", "latin", "broken-link", "directory", "pipe"}
    assert "1,000,001 bytes" in told["huge"]
    assert "UTF-8" in told["latin"]
    assert "not a file" in told["pipe"]


def test_a_place_for_agents_that_is_a_file_is_told(place: Place):
    place.write(place.cwd / ".claude", "agents", "x")
    assert [problem.what for problem in place.definitions().problems] == [
        "it cannot be read: Not a directory"
    ]


def test_an_unknown_name_lists_the_known_and_guesses(place: Place):
    place.write(place.plugin, "lint.md", text("lint"))
    definitions = place.definitions()
    for name, meant in (
        ("explore", "Explore"),
        ("general_purpose", "general-purpose"),
        ("lint", "tools:lint"),
    ):
        with pytest.raises(UnknownAgent) as error:
            definitions.find(name)
        assert error.value.close[0] == meant
        assert f"Is {meant} meant?" in str(error.value)
    with pytest.raises(UnknownAgent) as error:
        definitions.find("zzz")
    assert error.value.close == ()
    assert set(error.value.known) == {each.name for each in definitions.all()}
    assert "statusline-setup" in str(error.value)


def test_warnings_of_all_files_are_kept(place: Place):
    path = place.write(place.near, "a.md", text("a", extra="colour: red\n"))
    (warning,) = place.definitions().warnings
    assert warning.startswith(f"{path}:4: colour: ")


@pytest.mark.parametrize(
    ("directory", "trusted"), [("managed", True), ("near", False), ("user", True), ("plugin", False)]
)
def test_what_may_come_from_anyone_is_not_trusted(place: Place, directory: str, trusted: bool):
    where = {"managed": place.managed.parent / "agents", "plugin": place.plugin}
    place.write(where.get(directory) or getattr(place, directory), "a.md", text("a"))
    found: Definition = place.definitions().all()[0]
    assert found.source.trusted is trusted
