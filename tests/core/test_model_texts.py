"""Text files for models: templates, and that every text is used and every used text exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import shoal
from shoal.core.text.model_texts import ModelTexts, fill_template, unwrap_lines

PACKAGE = Path(shoal.__file__).parent
CALL = re.compile(
    r'(?:format_tool_text|load_tool_text)\(\s*(?:"(\w+)"|STRUCTURED_OUTPUT),\s*'
    r'("[^)]*?"(?: if \w+ else "\w+")?)[,)\s]'
)
KEY = re.compile(r'"(\w+)"')
NOTICES = {
    "core/prompts/endings.md": ("", "format_end_reason"),
    "agent/prompts/notices.md": ("agent", "format_notice"),
    "team/prompts/notices.md": ("team", "format_team_notice"),
    "runs/prompts/notices.md": ("runs", "format_run_notice"),
    "app/prompts/notices.md": ("app", "format_session_notice"),
    "stores/prompts/notices.md": ("stores", "format_store_notice"),
    "workspaces/prompts/notices.md": ("workspaces", "format_workspace_notice"),
    "policy/prompts/notices.md": ("policy", "format_policy_notice"),
    "policy/prompts/shell.md": (
        "policy",
        "(?:format_shell_reason|UnjudgeableCommandError|note_trouble|_add_unknown_command"
        "|build_not_proven_readonly_verdict)",
    ),
    "wire/prompts/notifications.md": ("wire", "_fill"),
}


@cache
def list_sources(package: str) -> list[str]:
    return [path.read_text() for path in sorted((PACKAGE / package).rglob("*.py"))]


@cache
def read_sources(package: str) -> str:
    return "\n".join(list_sources(package))


def test_a_value_is_inserted_as_it_is() -> None:
    assert fill_template("{a} and {b}", a="{b} {0} %s", b="{a}") == "{b} {0} %s and {a}"
    assert fill_template("{a}% of %(a)s and %s", a="5%%") == "5%%% of %(a)s and %s"


def test_braces_of_json_are_no_placeholders() -> None:
    template = 'Send {"type": "x", "id": "{request}"} or {reason, text}'
    assert fill_template(template, request="r-1") == 'Send {"type": "x", "id": "r-1"} or {reason, text}'


@pytest.mark.parametrize("values", [{}, {"name": "ann", "team": "crew"}])
def test_a_missing_or_unused_value_is_an_error(values: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        fill_template("Hello {name}", **values)


def test_sections_are_read_once_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "Tool.md").write_text("Does it.\nWell.\n\n# -A\nLines\n\n# text:gone\n{path} is gone.\n")
    texts = ModelTexts(tmp_path)
    assert texts.load_sections("Tool") == {
        "": "Does it.\nWell.",
        "-A": "Lines",
        "text:gone": "{path} is gone.",
    }
    (tmp_path / "Tool.md").unlink()
    assert texts.fill_section("Tool", "text:gone", path="f") == "f is gone."


def test_a_refusal_keeps_its_reason_if_its_file_cannot_be_read(tmp_path: Path) -> None:
    text = ModelTexts(tmp_path).fill_section("notices", "not_started", reason="Too many open files")
    assert text.startswith("not_started. reason: Too many open files. (Shoal cannot read the text")


def test_lines_of_a_paragraph_are_joined_and_lists_kept() -> None:
    assert unwrap_lines("a\nb\n- c\nd\n\n-i e\n-x f") == "a b\n- c d\n\n-i e -x f"


@pytest.mark.parametrize("file", NOTICES)
def test_every_notice_is_used_and_every_used_notice_exists(file: str) -> None:
    package, function = NOTICES[file]
    path = PACKAGE / file
    sections = set(ModelTexts(path.parent).load_sections(path.stem)) - {""}
    calls = re.findall(rf"\b{function}\(\s*((?:[^()]|\([^()]*\))*?)(?:,|\))", read_sources(package))
    calls += re.findall(rf"\b{function}\(\s*('\w+')", read_sources(package))
    used = {key for call in calls for key in re.findall(r"[\"'](\w+)[\"']", call)}
    for prefix in re.findall(rf"\b{function}\(\s*f['\"](\w+)\{{", read_sources(package)):
        used |= {section for section in sections if section.startswith(prefix)}
    # Some names reach the function as an argument of another one, or from a table.
    used |= {section for section in sections if f'"{section}"' in read_sources(package)}
    assert used >= sections, sections - used
    assert {key for call in calls for key in re.findall(r"^[\"'](\w+)[\"']$", call.strip())} <= sections


@pytest.mark.parametrize("file", NOTICES)
def test_every_notice_gets_the_values_that_it_names(file: str) -> None:
    package, function = NOTICES[file]
    path = PACKAGE / file
    sections = ModelTexts(path.parent).load_sections(path.stem)
    wrong = []
    # The whole package takes seconds to parse.
    trees = (ast.parse(text) for text in list_sources(package) if re.search(function, text))
    for call in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if not re.fullmatch(function, name) or any(each.arg is None for each in call.keywords):
            continue
        given = {each.arg for each in call.keywords}
        for key in list_keys(call):
            needed = set(re.findall(r"\{([a-z_]+)\}", sections[key]))
            wrong += [f"{key}: {ast.unparse(call)}"] if needed != given else []
    assert wrong == []


def list_keys(call: ast.Call) -> list[str]:
    """Return the keys that a call may pass, if the code names them."""
    match call.args:
        case [ast.Constant(value=str(key))]:
            return [key]
        case [ast.IfExp(body=ast.Constant(value=str(first)), orelse=ast.Constant(value=str(second)))]:
            return [first, second]
    return []


def test_every_text_of_a_tool_is_used_and_every_used_text_exists() -> None:
    texts = ModelTexts(PACKAGE / "tools" / "prompts")
    existing = {
        (path.stem, section.removeprefix("text:"))
        for path in (PACKAGE / "tools" / "prompts").glob("*.md")
        for section in texts.load_sections(path.stem)
        if section.startswith("text:")
    }
    used = {
        (tool or "StructuredOutput", key)
        for tool, keys in CALL.findall(read_sources("tools"))
        for key in KEY.findall(keys)
    }
    # Some keys are chosen at run time, or used by other packages.
    quoted = set(re.findall(r"[\"'](\w+)[\"']", read_sources("tools") + read_sources("app")))
    assert used <= existing
    assert {key for _, key in existing} <= quoted


def test_no_file_has_two_texts_with_one_name() -> None:
    for path in PACKAGE.rglob("prompts/*.md"):
        names = re.findall(r"^# (\S+)$", path.read_text(), re.MULTILINE)
        assert len(names) == len(set(names)), path
