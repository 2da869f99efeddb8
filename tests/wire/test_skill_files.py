"""Skills and commands as text: the open standard, what is refused and with which line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.agents.agent_definitions import DefinitionSource
from shoal.core.errors import InvalidAgentDefinition
from shoal.core.extensions.skills import Skill, SkillExecution, SkillInformation
from shoal.wire.skill_codec import ParsedSkill, parse_skill, parse_slash_command_file

WHERE = DefinitionSource(kind="user", path=Path("/s/pdf/SKILL.md"))
WHOLE = """\
---
name: pdf
description: Fills forms. Use it when a form is to be filled.
license: Apache-2.0
compatibility: Needs poppler
metadata:
  author: somebody
  version: "1.0"
allowed-tools: Bash(pdftotext:*) Read
context: fork
agent: Explore
model: haiku
argument-hint: [file] [page]
disable-model-invocation: true
user-invocable: yes
---
# Forms

Read them.
"""


def parse_text(text: str, name: str = "pdf") -> ParsedSkill:
    return parse_skill(text, WHERE, name=name)


def test_every_field_is_read() -> None:
    skill = parse_text(WHOLE).skill
    assert parse_text(WHOLE).warnings == ()
    assert skill == Skill(
        name="pdf",
        description="Fills forms. Use it when a form is to be filled.",
        body="# Forms\n\nRead them.",
        source=skill.source,
        information=SkillInformation(
            license="Apache-2.0",
            compatibility="Needs poppler",
            metadata={"author": "somebody", "version": "1.0"},
        ),
        allowed_tools=("Bash(pdftotext:*)", "Read"),
        execution=SkillExecution(forks=True, agent="Explore", model="haiku"),
        argument_hint="[file] [page]",
        for_model=False,
        for_person=True,
        digest=skill.digest,
    )
    assert skill.source.locate_field("allowed_tools") == "/s/pdf/SKILL.md:9"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ":1: the file is empty"),
        ("---\nname: pdf\n", ":1: the front matter does not end"),
        ("---\nname: pdf\n---\n", ":1: description: missing"),
        ("---\nname: pdf\ndescription:\n---\n", ":1: description: missing"),
        ("---\nname: a/b\ndescription: d\n---\nx", ":2: name: 'a/b' is not a valid name"),
        ("---\nname: ../up\ndescription: d\n---\nx", ":2: name: '../up' is not a valid name"),
        ("---\nname: a:b\ndescription: d\n---\nx", ":1: name: 'a:b' is not a valid name"),
        ("---\nname: pdf\ndescription: [a, b]\n---\nx", ":3: description: expected a string, got a list"),
        ("---\nname: pdf\nname: pdf\ndescription: d\n---\nx", ":3: name: it occurs twice"),
        ("---\nname: pdf\ndescription: d\ncontext: spoon\n---\nx", ":4: context: expected fork"),
        ("---\nname: pdf\ndescription: d\nallowed-tools: Bash(x\n---\nx", ":4: allowed-tools: the paren"),
        (
            "---\nname: pdf\ndescription: d\nuser-invocable: maybe\n---\nx",
            ":4: user-invocable: expected true or false",
        ),
        ("---\nname: pdf\ndescription: d\nmetadata: x\n---\nx", ":4: metadata: expected a mapping"),
        (f"---\nname: pdf\ndescription: {'d' * 70_000}\n---\nx", ":1: the front matter has more than"),
    ],
)
def test_an_invalid_skill_is_refused_with_file_and_line(text: str, told: str) -> None:
    with pytest.raises(InvalidAgentDefinition) as bad:
        parse_text(text)
    assert str(bad.value).startswith(f"/s/pdf/SKILL.md{told}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("---\ndescription: d\n---\nx", ":1: name: missing"),
        ("---\nname: pdf\n---\nx", ":1: description: missing; the first paragraph"),
        ("---\nname: Pdf_Two\ndescription: d\n---\nx", ":2: name: other programs may reject it"),
        ("---\nname: other\ndescription: d\n---\nx", ":2: name: other programs expect"),
        (f"---\nname: pdf\ndescription: {'d' * 2_000}\n---\nx", ":3: description: it has more than 1,024"),
        ("---\nname: pdf\ndescription: d\nalowed-tools: Read\n---\nx", "did you mean allowed-tools?"),
        ("---\nname: pdf\ndescription: Use it when: x\n---\nx", ":3: description: not valid YAML"),
        ("---\nname: pdf\ndescription: d\n---\n", "there is no text after"),
    ],
)
def test_fields_that_other_programs_refuse_give_only_a_warning(text: str, told: str) -> None:
    (warning, *_) = parse_text(text).warnings
    assert told in warning


@pytest.mark.spec("CMP-119")
@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("Fills in\nforms: $ARGUMENTS\n\nMore.", "Fills in forms: $ARGUMENTS"),
        ("\ufeff\n# PDF\nFills in forms.\n", "Fills in forms."),
        ("# Only a heading\n", "Only a heading"),
        ("---\nname: pdf\n---\n\n# PDF\n\nFills in forms.", "Fills in forms."),
        ("---\nname: pdf\ndescription:\n---\nFills in forms.", "Fills in forms."),
    ],
)
def test_a_skill_without_a_description_is_described_by_its_first_paragraph(
    text: str, description: str
) -> None:
    skill = parse_text(text).skill
    assert (skill.name, skill.description) == ("pdf", description)


@pytest.mark.spec("CMP-070")
@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        ("To $1.", True),
        ("From $ARGUMENTS[0] to $1.", False),
        ("To $ARGUMENTS[1].", False),
        ("---\narguments: [left, right]\n---\n$left, then $1", False),
    ],
)
def test_only_a_bare_second_argument_may_have_been_counted_from_one(text: str, is_warned: bool) -> None:
    warnings = parse_slash_command_file(text, WHERE, name="go").warnings
    assert any("it uses $1 but not $0" in each for each in warnings) == is_warned


def test_a_command_needs_no_front_matter_and_is_named_after_its_file() -> None:
    command = parse_slash_command_file("# Review it\n\nLook at $1.", WHERE, name="team:review").skill
    assert (command.name, command.description, command.kind) == ("team:review", "Review it", "command")
    command = parse_slash_command_file("---\ndescription: d\n---\nLook.", WHERE, name="review").skill
    assert (command.description, command.body) == ("d", "Look.")
    for text, name in (("", "x"), ("---\ndescription: d\n---\n", "x"), ("body", "a b")):
        with pytest.raises(InvalidAgentDefinition):
            parse_slash_command_file(text, WHERE, name=name)


LETTERS = "abcdefghijklmnopqrstuvwxyzäñжλ0123456789"
NAMES = st.from_regex(r"[a-zäжλ0-9]+(-[a-zäжλ0-9]+){0,3}", fullmatch=True).filter(
    lambda name: len(name) <= 64
)
WORDS = st.text(alphabet=f"{LETTERS} ABC.,;()/'\"-–?!", min_size=1, max_size=200).filter(str.strip)


@st.composite
def fronts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A name, and the lines of a front matter."""
    name = draw(NAMES)
    lines = [f"name: {name}", f"description: {draw(WORDS).strip()}"]
    more = {key: draw(st.none() | WORDS) for key in ("license", "compatibility")}
    lines += [f"{key}: {value.strip()}" for key, value in more.items() if value is not None]
    if draw(st.booleans()):
        lines.append("allowed-tools: Bash(git:*) Bash(jq:*) Read")
    if metadata := draw(st.dictionaries(st.sampled_from(["author", "version"]), WORDS, max_size=2)):
        lines += ["metadata:", *(f"  {key}: {value.strip()}" for key, value in metadata.items())]
    return name, lines


def test_words_of_yaml_in_metadata_stay_as_they_are_written() -> None:
    text = "---\nname: a\ndescription: d\nmetadata:\n  x: false\n  y: true\n  z: null\n  n: 12\n---\nGo.\n"
    skill = parse_skill(text, DefinitionSource(kind="user", path=Path("SKILL.md")), name="a").skill
    assert dict(skill.information.metadata) == {"x": "false", "y": "true", "z": "null", "n": "12"}


@pytest.mark.needs("skills_ref")
@pytest.mark.skipif(
    sys.getfilesystemencoding() != "utf-8",
    reason="the reference implementation reads as the locale says",
)
@given(front=fronts(), body=st.text(max_size=200))
def test_skills_valid_in_the_reference_implementation_are_accepted(
    tmp_path_factory: pytest.TempPathFactory, front: tuple[str, list[str]], body: str
) -> None:
    import skills_ref

    name, lines = front
    directory = tmp_path_factory.mktemp("skills") / name
    directory.mkdir()
    file = directory / "SKILL.md"
    file.write_text("\n".join(["---", *lines, "---", body.replace("\0", ""), ""]), errors="replace")
    if skills_ref.validate(directory):
        return
    theirs = skills_ref.read_properties(directory)
    ours = parse_skill(file.read_text(), DefinitionSource(kind="user", path=file), name=name).skill
    assert ours.name == theirs.name
    if not any("---" in line for line in lines):  # it takes them for the end, wherever they stand
        assert ours.description == theirs.description
        assert dict(ours.information.metadata) == (theirs.metadata or {})
