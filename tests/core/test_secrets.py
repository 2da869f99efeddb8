"""Keys and tokens do not enter the records of a run, whatever prints them."""

from __future__ import annotations

import json
import os
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.core.errors import Unauthorized
from shoal.core.events import Finished, ToolReturned
from shoal.core.messages import ToolUse, result_text
from shoal.core.secrets import SHAPES_ALONE, Secrets, is_secret
from shoal.models.scripted import ScriptedModel
from shoal.testing import messages_server
from shoal.testing.replies import HttpError

RANDOM = "x9KfQ2mZ7pLw4RtY8sVb3NcH6jDg1aEu5oTi"
KEYS = (
    f"sk-ant-api03-{RANDOM}-{RANDOM}",
    f"sk-proj-{RANDOM}",
    f"sk_live_{RANDOM}",
    f"ghp_{RANDOM}",
    f"github_pat_{RANDOM}_{RANDOM}",
    f"glpat-{RANDOM[:20]}",
    f"xoxb-17653672481-19874698323-{RANDOM[:24]}",
    f"npm_{RANDOM}",
    f"hf_{RANDOM}",
    "AKIAIOSFODNN7EXAMPLE",
    f"AIza{RANDOM[:35]}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.{RANDOM}",
)
BLOCK = (
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{RANDOM}{RANDOM}\n{RANDOM}\n-----END OPENSSH PRIVATE KEY-----\n"
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "key={} and more", '"{}"', "a\n{}\nb", "https://u:{}@host/", "\t{}"]
)
def test_a_key_of_a_known_shape_is_redacted_wherever_it_stands(key: str, around: str) -> None:
    text = around.format(key)
    for told in (SHAPES_ALONE.redacted(text), SHAPES_ALONE.redacted(json.dumps(text))):
        assert key[12:] not in told
        assert "[redacted]" in told
        assert RANDOM[:10] not in told
    assert SHAPES_ALONE.redacted(text).startswith(around.partition("{")[0])
    assert SHAPES_ALONE.redacted(text).endswith(around.rpartition("}")[2])


def test_a_bearer_token_and_a_private_key_are_redacted() -> None:
    assert SHAPES_ALONE.redacted(f"authorization: Bearer {RANDOM}") == "authorization: Bearer [redacted]"
    for text in (BLOCK, json.dumps(BLOCK), BLOCK[:80], json.dumps(BLOCK[:80])):
        told = SHAPES_ALONE.redacted(f"before {text} after")
        assert RANDOM[:12] not in told
        assert told.startswith("before ")
        assert told.endswith("after")
    assert SHAPES_ALONE.redacted(f"{BLOCK}{BLOCK}").count("[redacted]") == 2


@pytest.mark.parametrize(
    "text",
    [
        "task-list and risk-averse",
        "123e4567-e89b-12d3-a456-426614174000",
        "sk-short",
        "AKIA",
        "toolu_01A09q90qw90lq917835lq9",
        "a bearer of internationalization",
        "-----BEGIN CERTIFICATE-----\nMIIB" + "A" * 60,
        "/usr/lib/python3/dist-packages/verylongdirectoryname/file.py",
        "0123456789abcdef0123456789abcdef01234567",
    ],
)
def test_what_is_no_key_is_left_as_it_is(text: str) -> None:
    assert SHAPES_ALONE.redacted(text) is text


def test_values_of_variables_are_redacted_by_name_and_also_where_they_are_cut() -> None:
    value = 'hunter2"; drop\\table'
    secrets = Secrets({"DB_PASSWORD": value, "HOME": "/home/someone", "SSH_KEY": "/home/someone/.ssh/id"})
    assert secrets.redacted(f"login {value}!") == "login [redacted: DB_PASSWORD]!"
    assert secrets.redacted(json.dumps([value])) == '["[redacted: DB_PASSWORD]"]'
    assert secrets.redacted(f"login {value[:12]}") == "login [redacted: DB_PASSWORD]"
    assert (
        secrets.redacted("hunter2 is not it, /home/someone is not")
        == "hunter2 is not it, /home/someone is not"
    )


def test_short_values_and_numbers_are_not_looked_for() -> None:
    secrets = Secrets({"API_KEY": "k", "TOKEN": "1234567890", "SECRET": "none"})
    assert secrets.redacted("ok, 1234567890, none") == "ok, 1234567890, none"


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("ANTHROPIC_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("github_token", True),
        ("PGPASSWORD", False),
        ("KEYBOARD", False),
        ("PATH", False),
        ("MAX_TOKENS", False),
    ],
)
def test_a_name_says_whether_a_variable_holds_a_secret(name: str, holds: bool) -> None:
    assert is_secret(name) is holds


@given(st.text(), st.text(string.ascii_letters + string.digits, min_size=16, max_size=40), st.text())
def test_any_text_stays_what_it_is_around_the_secret(before: str, value: str, after: str) -> None:
    secrets = Secrets({"TOKEN": f"q{value}"})
    told = secrets.redacted(f"{before} q{value} {after}")
    assert f"q{value}" not in told
    assert secrets.redacted(told) == told


def kept_under(directory: Path) -> dict[Path, str]:
    return {path: path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()}


async def test_a_key_that_a_command_prints_is_in_the_conversation_and_in_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, shaped = "correct-horse-battery", f"ghp_{RANDOM}"
    monkeypatch.setenv("DEPLOY_TOKEN", secret)
    mind = [
        ToolUse(id="c1", name="Bash", input={"command": f"echo $DEPLOY_TOKEN {shaped}"}),
        f"The token is {secret}.",
    ]
    tape = tmp_path / "tape.jsonl"
    project = tmp_path / "project"
    project.mkdir()
    options = {"cwd": project, "skip_permissions": True, "debug": True}
    async with shoal.open(model=ScriptedModel(mind), record=tape, **options) as session:
        events = [event async for event in session.run(f"show {secret}")]
    (returned,) = [event for event in events if isinstance(event, ToolReturned)]
    assert result_text(returned.result) == f"{secret} {shaped}"
    home = Path(os.environ["SHOAL_HOME"])
    holding = [path for path, text in kept_under(home).items() if secret in text or shaped in text]
    assert [path.suffix for path in holding] == [".jsonl"]
    assert holding[0].parent.parent.name == "projects"
    journal = next(path for path in kept_under(home) if path.name == "journal.jsonl").read_text()
    debug = next(iter((home / "debug").glob("*.txt"))).read_text()
    for record in (journal, debug, tape.read_text()):
        assert "[redacted: DEPLOY_TOKEN]" in record
        assert secret not in record
        assert shaped not in record

    monkeypatch.setenv("DEPLOY_TOKEN", "another-token-today")
    async with shoal.open(model=f"replay:{tape}", **options) as session:
        events = [event async for event in session.run("show another-token-today")]
    assert isinstance(events[-1], Finished)
    assert events[-1].text == "The token is [redacted: DEPLOY_TOKEN]."


async def test_a_provider_that_repeats_the_key_does_not_make_it_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no-known-shape-at-all")
    said = "no key no-known-shape-at-all here"
    async with messages_server([HttpError(status=401, message=said)]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        async with shoal.open(cwd=tmp_path, model="anthropic:claude-haiku-5-5") as session:
            events = [event async for event in session.run("hello")]
    last = events[-1]
    assert isinstance(last, Finished)
    assert isinstance(last.error, Unauthorized)
    for text in (last.detail, str(last.error)):
        assert "[redacted: ANTHROPIC_API_KEY]" in text
    assert not [
        text for text in kept_under(Path(os.environ["SHOAL_HOME"])).values() if "no-known-shape" in text
    ]
