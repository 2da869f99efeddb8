"""`shoal web` as a person types it, and the front end it ships."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.surfaces.cli.main import run_command_line
from shoal.surfaces.web.application import get_static_directory


@contextmanager
def run_web_command(*flags: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    command = [sys.executable, "-m", "shoal", "web", "--json", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_web_command_prints_its_address_and_stops_cleanly_with_an_open_page(
    number: signal.Signals,
) -> None:
    with run_web_command() as (process, told), httpx.Client(timeout=15) as browser:
        page = browser.get(told["url"], follow_redirects=True)
        assert page.status_code == 200
        assert str(page.url).endswith("/")
        base = str(page.url).rstrip("/")
        parts = re.findall(r'"(/\w+/app\.\w+)"', page.text)
        assert len(parts) == 2
        assert [browser.get(f"{base}{part}").status_code for part in parts] == [200, 200]
        with browser.stream("GET", f"{base}/api/questions/stream") as stream:
            lines = stream.iter_lines()
            assert next(lines)
            process.send_signal(number)
            for _ in lines:
                pass
        assert process.wait(15) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_several_web_servers_run_at_once_with_their_own_tokens() -> None:
    with run_web_command() as (_, one), run_web_command() as (_, other):
        assert one["token"] != other["token"]
        base = other["url"].partition("?")[0]
        assert httpx.get(base, params={"token": one["token"]}).status_code == 403
        assert httpx.get(base, params={"token": other["token"]}).status_code == 303


def test_a_public_server_needs_a_token_chosen_by_the_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["web", "--host", "0.0.0.0"]) == 2
    assert "must set --token" in capsys.readouterr().err
    assert run_command_line(["web", "--host", "0.0.0.0", "--token", "short"]) == 2
    assert "at least 16 characters" in capsys.readouterr().err


def test_a_port_in_use_is_reported_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    with run_web_command() as (_, told):
        port = told["url"].partition("/?")[0].rpartition(":")[2]
        assert run_command_line(["web", "--port", port]) == 1
        assert ": Address already in use. Try another --port." in capsys.readouterr().err


def test_a_home_that_is_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "notes.txt"
    home.write_text("not a directory")
    monkeypatch.setenv("SHOAL_HOME", str(home))
    assert run_command_line(["web"]) == 1
    assert f"{home} is not a directory" in capsys.readouterr().err


def test_without_the_web_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setattr("shoal.surfaces.cli.web_command.find_spec", lambda _: None)
    assert run_command_line(["web"]) == 1
    assert "pip install 'shoal[web]'" in capsys.readouterr().err


def test_the_command_line_does_not_import_the_web_view_until_it_is_used() -> None:
    probe = (
        "import sys; import shoal.surfaces.cli.main, shoal.surfaces.cli.web_command;"
        "print([name for name in ('starlette', 'uvicorn', 'shoal.surfaces.web') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"


def test_the_built_front_end_is_part_of_the_package() -> None:
    """The wheel has every file of the package but those that git ignores."""
    static = get_static_directory()
    files = [static / name for name in ("index.html", "app.js", "app.css")]
    assert all(file.stat().st_size for file in files)
    ignored = subprocess.run(
        ["git", "check-ignore", *map(str, files)], cwd=static, capture_output=True, text=True, check=False
    )
    assert ignored.stdout == ""
