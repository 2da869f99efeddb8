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
from shoal.core.conversation.messages import ToolUseBlock, extract_tool_result_text
from shoal.core.errors import Unauthorized
from shoal.core.events import RunFinished, ToolOutputReturned
from shoal.core.text.redaction import KEY_SHAPE_REDACTOR, SecretRedactor, is_secret_variable_name
from shoal.models.scripted_model import ScriptedModel
from shoal.testing import messages_server
from shoal.testing.mock_replies import HttpErrorFault

RANDOM = "x9KfQ2mZ7pLw4RtY8sVb3NcH6jDg1aEu5oTi"
KEYS = (
    f"sk-ant-api03-{RANDOM}-{RANDOM}",
    f"sk-proj-{RANDOM}",
    f"sk_live_{RANDOM}",
    f"ghp_{RANDOM}",
    f"github_pat_{RANDOM}_{RANDOM}",
    f"glpat-{RANDOM[:20]}",
    f"sk_test_{RANDOM[:24]}",
    f"whsec_{RANDOM[:24]}",
    f"glsa_{RANDOM[:24]}",
    f"shpat_{RANDOM[:24]}",
    f"dop_v1_{RANDOM[:24]}",
    f"xapp-1-{RANDOM[:24]}",
    f"xoxb-17653672481-19874698323-{RANDOM[:24]}",
    f"npm_{RANDOM}",
    f"ghr_{RANDOM}",
    f"glptt-{RANDOM[:24]}",
    f"dckr_pat_{RANDOM[:27]}",
    f"rubygems_{RANDOM}",
    f"sntrys_{RANDOM}",
    f"lin_api_{RANDOM}",
    f"figd_{RANDOM}_{RANDOM[:4]}",
    f"pscale_tkn_{RANDOM}",
    f"PMAK-{RANDOM[:24]}-{RANDOM[:34]}",
    f"gsk_{RANDOM}",
    f"xai-{RANDOM}",
    f"tskey-auth-{RANDOM[:12]}CNTRL-{RANDOM}",
    f"GOCSPX-{RANDOM[:28]}",
    f"AGE-SECRET-KEY-1{RANDOM.upper()}",
    f"ATATT3x{RANDOM}",
    f"LTAI{RANDOM[:20]}",
    "dapi" + "0123456789abcdef" * 2,
    f"xoxc-17653672481-{RANDOM}",
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
def test_a_key_of_a_known_shape_is_redacted_in_any_context(key: str, around: str) -> None:
    text = around.format(key)
    for redacted in (KEY_SHAPE_REDACTOR.redact_text(text), KEY_SHAPE_REDACTOR.redact_text(json.dumps(text))):
        assert key[12:] not in redacted
        assert "[redacted]" in redacted
        assert RANDOM[:10] not in redacted
    assert KEY_SHAPE_REDACTOR.redact_text(text).startswith(around.partition("{")[0])
    assert KEY_SHAPE_REDACTOR.redact_text(text).endswith(around.rpartition("}")[2])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"hvs.CAESI{RANDOM}", "hvs.[redacted]"),
        (f"SG.{RANDOM[:22]}.{RANDOM}", "SG.[redacted]"),
        (f"ya29.a0{RANDOM}", "ya29.[redacted]"),
        (f"dp.pt.{RANDOM}", "dp.pt.[redacted]"),
        (f"123456789:AA{RANDOM[:33]}", "123456789:[redacted]"),
        (f"M{RANDOM[:23]}.{RANDOM[:6]}.{RANDOM[:27]}", "[redacted]"),
        ("postgres://app:hunter2@db/x", "postgres://app:[redacted]@db/x"),
        ("redis://:pass@cache:6379", "redis://:[redacted]@cache:6379"),
    ],
)
def test_a_key_behind_a_dot_or_a_colon_is_redacted(text: str, kept: str) -> None:
    for around in ("{}", "a {} b", '"{}"', "x={}\n"):
        assert KEY_SHAPE_REDACTOR.redact_text(around.format(text)) == around.format(kept)


@pytest.mark.parametrize(
    "text",
    [
        "fw_configurationmanager_updates_everything",
        "ops_configurationmanagement",
        "https://host:8080/path@revision",
        "git@github.com:owner/repository.git",
        "org.example.internationalization.resources.bundles",
        "https://${USER}:${PASSWORD}@host",
    ],
)
def test_a_name_that_begins_like_a_key_is_kept(text: str) -> None:
    assert KEY_SHAPE_REDACTOR.redact_text(text) == text


def test_a_bearer_token_and_a_private_key_are_redacted() -> None:
    assert (
        KEY_SHAPE_REDACTOR.redact_text(f"authorization: Bearer {RANDOM}")
        == "authorization: Bearer [redacted]"
    )
    for text in (BLOCK, json.dumps(BLOCK), BLOCK[:80], json.dumps(BLOCK[:80])):
        redacted = KEY_SHAPE_REDACTOR.redact_text(f"before {text} after")
        assert RANDOM[:12] not in redacted
        assert redacted.startswith("before ")
        assert redacted.endswith("after")
    assert KEY_SHAPE_REDACTOR.redact_text(f"{BLOCK}{BLOCK}").count("[redacted]") == 2


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
def test_text_without_keys_is_unchanged(text: str) -> None:
    assert KEY_SHAPE_REDACTOR.redact_text(text) is text


def test_values_of_secret_variables_are_redacted_even_when_truncated() -> None:
    value = 'hunter2"; drop\\table'
    secrets = SecretRedactor(
        {"DB_PASSWORD": value, "HOME": "/home/someone", "SSH_KEY": "/home/someone/.ssh/id"}
    )
    assert secrets.redact_text(f"login {value}!") == "login [redacted: DB_PASSWORD]!"
    assert secrets.redact_text(json.dumps([value])) == '["[redacted: DB_PASSWORD]"]'
    assert secrets.redact_text(f"login {value[:12]}") == "login [redacted: DB_PASSWORD]"
    assert (
        secrets.redact_text("hunter2 is not it, /home/someone is not")
        == "hunter2 is not it, /home/someone is not"
    )


def test_short_values_and_numbers_are_not_redacted() -> None:
    secrets = SecretRedactor({"API_KEY": "k", "TOKEN": "1234567890", "SECRET": "none"})
    assert secrets.redact_text("ok, 1234567890, none") == "ok, 1234567890, none"


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
def test_secret_variables_are_recognized_by_name(name: str, holds: bool) -> None:
    assert is_secret_variable_name(name) is holds


@given(st.text(), st.text(string.ascii_letters + string.digits, min_size=16, max_size=40), st.text())
def test_redaction_is_idempotent(before: str, value: str, after: str) -> None:
    secrets = SecretRedactor({"TOKEN": f"q{value}"})
    redacted = secrets.redact_text(f"{before} q{value} {after}")
    assert f"q{value}" not in redacted
    assert secrets.redact_text(redacted) == redacted


def read_all_files(directory: Path) -> dict[Path, str]:
    return {path: path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()}


async def test_a_key_that_a_command_prints_is_redacted_in_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, shaped = "correct-horse-battery", f"ghp_{RANDOM}"
    monkeypatch.setenv("DEPLOY_TOKEN", secret)
    replies = [
        ToolUseBlock(id="c1", name="Bash", input={"command": f"echo $DEPLOY_TOKEN {shaped}"}),
        f"The token is {secret}.",
    ]
    tape = tmp_path / "tape.jsonl"
    project = tmp_path / "project"
    project.mkdir()
    options = {"cwd": project, "skip_permissions": True, "debug": True}
    async with shoal.open(model=ScriptedModel(replies), record=tape, **options) as session:
        events = [event async for event in session.run(f"show {secret}")]
    (returned,) = [event for event in events if isinstance(event, ToolOutputReturned)]
    assert extract_tool_result_text(returned.result) == f"{secret} {shaped}"
    home = Path(os.environ["SHOAL_HOME"])
    holding = [path for path, text in read_all_files(home).items() if secret in text or shaped in text]
    assert [path.suffix for path in holding] == [".jsonl"]
    assert holding[0].parent.parent.name == "projects"
    journal = next(path for path in read_all_files(home) if path.name == "journal.jsonl").read_text()
    debug = next(iter((home / "debug").glob("*.txt"))).read_text()
    for record in (journal, debug, tape.read_text()):
        assert "[redacted: DEPLOY_TOKEN]" in record
        assert secret not in record
        assert shaped not in record

    monkeypatch.setenv("DEPLOY_TOKEN", "another-token-today")
    async with shoal.open(model=f"replay:{tape}", **options) as session:
        events = [event async for event in session.run("show another-token-today")]
    assert isinstance(events[-1], RunFinished)
    assert events[-1].text == "The token is [redacted: DEPLOY_TOKEN]."


async def test_a_key_repeated_by_the_provider_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no-known-shape-at-all")
    said = "no key no-known-shape-at-all here"
    async with messages_server([HttpErrorFault(status=401, message=said)]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        async with shoal.open(cwd=tmp_path, model="anthropic:claude-haiku-5-5") as session:
            events = [event async for event in session.run("hello")]
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert isinstance(last.error, Unauthorized)
    for text in (last.detail, str(last.error)):
        assert "[redacted: ANTHROPIC_API_KEY]" in text
    assert not [
        text for text in read_all_files(Path(os.environ["SHOAL_HOME"])).values() if "no-known-shape" in text
    ]
