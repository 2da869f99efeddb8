"""The user's shell, as commands find it."""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path

import pytest
from shell_workbench import get_text, open_workbench

from shoal.tools.shell_snapshot import find_user_shell

RC = """
echo noise on start
case $- in *i*) ;; *) return ;; esac
greet() { echo "hello $1, it's me"; }
_completion() { :; }
__needed() { echo needed; }
alias ll='echo alias "of mine"'
alias greet=never
shopt -s nullglob
set -o pipefail
export PATH="$HOME/my bin:$PATH"
"""


def write_startup_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "user").mkdir(exist_ok=True)
    (tmp_path / "user" / ".bashrc").write_text(content)


@pytest.mark.spec("BCK-05", "HOM-02")
async def test_commands_have_the_functions_aliases_options_and_path_of_the_users_shell(
    tmp_path: Path,
) -> None:
    write_startup_file(tmp_path, RC)
    tool = tmp_path / "user" / "my bin" / "mytool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho from my bin\n")
    tool.chmod(0o755)
    async with open_workbench(tmp_path) as workbench:
        assert (await workbench.run_bash("ll")).content == "alias of mine"
        assert (await workbench.run_bash("\\greet you; __needed; mytool")).content == (
            "hello you, it's me\nneeded\nfrom my bin"
        )
        assert (await workbench.run_bash("echo none*here; false | true; echo $?")).content == "1"
        assert (await workbench.run_bash("declare -F _completion")).is_error
        (snapshot,) = (workbench.home / "shell-snapshots").iterdir()
        assert re.fullmatch(r"snapshot-bash-\d{13}-[0-9a-f]{8}\.sh", snapshot.name)
        assert stat.S_IMODE(snapshot.stat().st_mode) == 0o600
        assert not workbench.notes
    assert not snapshot.exists()


@pytest.mark.spec("USR-12", "HOM-06")
async def test_snapshots_of_killed_processes_are_removed_and_those_in_use_stay(tmp_path: Path) -> None:
    places = tmp_path / "tmp"
    places.mkdir()
    async with open_workbench(tmp_path, TMPDIR=str(places)) as workbench:
        await workbench.run_bash("true")
        (snapshot,) = (workbench.home / "shell-snapshots").iterdir()
        (place,) = places.iterdir()
    other = snapshot.with_name("snapshot-bash-1-0123abcd.sh")
    for left in (snapshot, snapshot.with_name(f"{snapshot.name}.part"), other):
        left.touch()
    for directory in (place, places / "shoal-0123abcd"):
        directory.mkdir()
    (tmp_path / "project").rmdir()
    async with open_workbench(tmp_path, TMPDIR=str(places)) as workbench:
        assert list((workbench.home / "shell-snapshots").iterdir()) == [other]
        assert [each.name for each in places.iterdir()] == ["shoal-0123abcd"]


@pytest.mark.spec("USR-12", "HOM-06")
@pytest.mark.parametrize("moment", ["the start", "the end"])
async def test_files_of_killed_teammates_are_removed_at(tmp_path: Path, moment: str) -> None:
    places, snapshots = tmp_path / "tmp", tmp_path / "home" / "shell-snapshots"
    places.mkdir()
    async with open_workbench(tmp_path, TMPDIR=str(places)) as lead:
        await lead.run_bash("true")
        (place,), (snapshot,) = places.iterdir(), snapshots.iterdir()

    def leave_files() -> None:
        mark = place.name.removeprefix("shoal-")
        for name in (f"{place.name}-0123abcd", "shoal-0123abcd", "shoal-0123abcd-0123abcd"):
            (places / name).mkdir()
            (places / name / "left").touch()
        for name in (f"{mark}-0123abcd", "0123abcd-0123abcd"):
            (snapshots / f"snapshot-bash-1-{name}.sh").touch()

    if moment == "the start":
        leave_files()
    (tmp_path / "project").rmdir()
    async with open_workbench(tmp_path, TMPDIR=str(places)):
        if moment == "the end":
            leave_files()
        else:
            assert not list(places.glob(f"{place.name}*"))
    # Those of other sessions stay.
    assert {each.name for each in places.iterdir()} == {"shoal-0123abcd", "shoal-0123abcd-0123abcd"}
    assert [each.name for each in snapshots.iterdir()] == ["snapshot-bash-1-0123abcd-0123abcd.sh"]
    assert not snapshot.exists()


@pytest.mark.spec("USR-12")
async def test_a_partial_snapshot_of_a_killed_process_is_removed_by_any_session(tmp_path: Path) -> None:
    directory = tmp_path / "home" / "shell-snapshots"
    directory.mkdir(parents=True)
    half, young, whole = (
        directory / name
        for name in (
            "snapshot-bash-1-0123abcd.sh.part",
            "snapshot-zsh-2-0123abcd.sh.part",
            "snapshot-bash-3-0123abcd.sh",
        )
    )
    for left in (half, young, whole):
        left.touch()
    for left in (half, whole):
        os.utime(left, (time.time() - 61,) * 2)
    target = tmp_path / "elsewhere"
    target.write_text("not ours")
    link = directory / "snapshot-bash-4-0123abcd.sh.part"
    link.symlink_to(target)
    async with open_workbench(tmp_path):
        assert set(directory.iterdir()) == {young, whole, link}
    assert target.read_text() == "not ours"


@pytest.mark.spec("BCK-05")
async def test_the_shell_snapshot_is_taken_once(tmp_path: Path) -> None:
    write_startup_file(tmp_path, f"echo x >> {tmp_path}/times")
    async with open_workbench(tmp_path) as workbench:
        workbench.shells.prepare_snapshot()
        for _ in range(3):
            await workbench.run_bash("true")
    assert (tmp_path / "times").read_text() == "x\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("exit 1", "ended before it had written"),
        ("exec true", "ended before it had written"),
        ("trap '' TERM HUP; while :; do sleep 60; done", "took more than 0.5 s"),
        ("kill -STOP $$", "took more than 0.5 s"),
    ],
)
async def test_a_failed_snapshot_is_noted_and_commands_run_without_it(
    tmp_path: Path, content: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.tools.shell_snapshot.SNAPSHOT_TIMEOUT", 0.5 if "0.5 s" in why else 30)
    write_startup_file(tmp_path, content)
    async with open_workbench(tmp_path) as workbench:
        started = time.monotonic()
        assert (await workbench.run_bash("echo works")).content == "works"
        assert time.monotonic() - started < 20
        (note,) = workbench.notes
        assert note.startswith("Commands run without your shell's functions and aliases: ")
        assert why in note
        assert not list((workbench.home / "shell-snapshots").iterdir())


async def test_an_unwritable_home_is_noted_and_commands_run_without_a_snapshot(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where a directory should be")
    async with open_workbench(tmp_path) as workbench:
        assert (await workbench.run_bash("echo works")).content == "works"
        assert "Not a directory" in workbench.notes[0]


async def test_a_session_that_ends_during_the_snapshot_does_not_wait_for_it(tmp_path: Path) -> None:
    write_startup_file(tmp_path, "sleep 60")
    started = time.monotonic()
    async with open_workbench(tmp_path) as workbench:
        workbench.shells.prepare_snapshot()
        await workbench.clock.sleep(0)
    assert time.monotonic() - started < 30


async def test_commands_run_without_a_deleted_snapshot(tmp_path: Path) -> None:
    async with open_workbench(tmp_path) as workbench:
        await workbench.run_bash("true")
        (snapshot,) = (workbench.home / "shell-snapshots").iterdir()
        snapshot.unlink()
        assert (await workbench.run_bash("echo works")).content == "works"


async def test_commands_run_in_sh_if_no_other_shell_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: "bash" not in str(path))
    async with open_workbench(tmp_path, SHELL="/usr/bin/fish") as workbench:
        monkeypatch.undo()
        outcome = await workbench.run_bash("mkdir sub; cd sub; echo $0; exit 3")
        assert get_text(outcome).startswith("sh\n")
        assert workbench.workspace.cwd == workbench.project / "sub"


@pytest.mark.parametrize(
    ("shell", "kind"),
    [("/bin/bash", "bash"), ("/usr/bin/fish", "bash"), ("bash", "bash"), ("/no/zsh", "bash")],
)
def test_the_users_shell_is_used_if_supported(shell: str, kind: str) -> None:
    assert find_user_shell({"SHELL": shell}).kind == kind
