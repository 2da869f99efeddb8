"""Addresses of databases that no server can have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from shoal.core.errors import SettingsError, StateFileError
from shoal.stores.store_choice import open_store
from shoal.surfaces.cli.store_commands import store_commands

pytestmark = pytest.mark.needs("asyncpg")


def use_store(address, home):
    open_store(address, home=home).find_session("x")


def show_status(address, home):
    CliRunner().invoke(
        store_commands,
        ["status", "--store", address],
        env={"SHOAL_HOME": str(home)},
        catch_exceptions=False,
        standalone_mode=False,
    )


@pytest.mark.parametrize("use", [use_store, show_status])
@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("postgresql://h:abc/x", "the port 'abc' is not a number from 1 to 65535"),
        ("postgresql://h:99999/x", "the port '99999' is not"),
        ("postgresql://h:0/x", "the port '0' is not"),
        ("postgresql://h:-1/x", "the port '-1' is not"),
        ("postgresql://ann:secret@h:5432,i:abc/x", "the port 'abc' is not"),
        ("postgresql://h/x?port=abc", "the port 'abc' is not"),
        ("postgresql://::1:5432/x", "an IPv6 address needs brackets, such as [::1]"),
        ("postgresql://[::1]:x/x", "the port 'x' is not"),
        ("postgresql://[::1/x", "Invalid IPv6 URL"),
        ("postgresql://ann:sec/ret@h/x", "the password has a / that is not written as %2F"),
        ("postgresql://h/x?sslmode=often", "sslmode"),
        ("postgresql://ann:sec#ret@h/x", "the password has a # or ? that is not written as %23 or %3F"),
        ("postgresql://ann:sec?ret@h/x", "that is not written as %23 or %3F"),
        ("postgresql://ann:12?sec@h/x?sslmode=disable", "that is not written as %23 or %3F"),
        ("postgresql://ann:12/3#sec@h/x", "that is not written as %23 or %3F"),
        ("postgresql://ann:sec\u2100ret@h/x", "a character that is not allowed before the database"),
    ],
)
def test_an_address_that_is_not_valid_is_refused_with_a_sentence(tmp_path, use, address, problem):
    with pytest.raises(SettingsError) as raised:
        use(address, tmp_path)
    text = str(raised.value)
    assert problem in text
    assert "SHOAL_STORE" in text
    assert "sec" not in text


@pytest.mark.parametrize(
    "address",
    ["postgresql://ann:12/34@h/x", "postgresql://ann:secret@127.0.0.1:1,[::1]:1/x?sslmode=disable&port="],
)
def test_the_password_of_an_address_is_not_shown(tmp_path, address):
    with pytest.raises((SettingsError, StateFileError)) as raised:
        use_store(address, tmp_path)
    assert not [word for word in ("12", "34", "secret") if word in str(raised.value).replace("127.0.0", "")]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:sec#ret@h/x", "postgresql:…@h/x"),
        ("postgresql://ann:sec?ret@h/x?sslmode=disable", "postgresql:…@h/x"),
        ("postgresql://h:5432/x?user=ann@h&password=sec", "postgresql://h:5432/x"),
        ("postgresql://ann:sec@h/x?options=-c%20a@b", "postgresql://ann@h/x"),
    ],
)
def test_an_address_is_shown_without_any_part_of_its_password(address, shown):
    from shoal.stores.postgres.database_address import hide_password

    assert hide_password(address) == shown


@pytest.mark.parametrize(
    ("mode", "advice"), [(0o640, "Run: chmod 600 "), (0o600, "the password are correct.")]
)
def test_a_password_file_that_others_can_read_is_named_as_the_cause(tmp_path, monkeypatch, mode, advice):
    import asyncpg

    from shoal.stores.postgres.database_errors import build_unreachable_error

    passwords = tmp_path / "passwords"
    passwords.write_text("*:*:*:ann:secret\n")
    passwords.chmod(mode)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    text = str(build_unreachable_error("postgresql://ann@h/x", asyncpg.InvalidPasswordError("no")))
    assert advice in text
    assert (str(passwords) in text) == (mode == 0o640)


def test_a_password_file_that_others_can_read_causes_no_warning_of_python(tmp_path):
    passwords = tmp_path / "passwords"
    passwords.write_text("*:*:*:ann:secret\n")
    passwords.chmod(0o644)
    ran = subprocess.run(
        [sys.executable, "-m", "shoal", "store", "status", "--store", "postgresql://ann@127.0.0.1:1/x"],
        env={**os.environ, "PGPASSFILE": str(passwords), "SHOAL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("shoal: Cannot reach the store")
    assert len(ran.stderr.splitlines()) == 1
