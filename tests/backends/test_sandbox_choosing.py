"""Which sandbox holds, what is said when none does, and what is refused then."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.backends.sandbox.bubblewrap import Bubblewrap, explained
from shoal.backends.sandbox.choosing import ChosenSandbox, Wish, found_among
from shoal.backends.sandbox.kind import Kind
from shoal.backends.sandbox.landlock import Landlock
from shoal.backends.sandbox.seatbelt import Seatbelt, profile
from shoal.core.errors import ProcessError
from shoal.core.ports import Launch
from shoal.core.sandbox import Confines, Sandbox


def refusing_bwrap(directory: Path, said: str) -> Bubblewrap:
    """A bubblewrap as it is on machines that do not let it work."""
    program = directory / "bwrap"
    program.write_text(f"#!/bin/sh\necho 'bwrap: {said}' >&2\nexit 1\n")
    program.chmod(0o755)
    return Bubblewrap(f"{directory}:/usr/bin:/bin")


def chosen(*kinds: Kind, confines: Confines, notes: list[str], **wish: bool) -> ChosenSandbox:
    return ChosenSandbox(Wish(**wish), confines=lambda: confines, kinds=kinds, note=notes.append)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return Launch(argv=("/bin/true",), cwd=tmp_path, env={}, stdout=1, stderr=2)


@pytest.fixture
def confines(tmp_path: Path) -> Confines:
    return Confines(writable=(tmp_path,))


def test_where_none_works_the_reason_is_said_once_and_commands_run_plainly(
    tmp_path: Path, launch: Launch, confines: Confines
) -> None:
    notes: list[str] = []
    box: Sandbox = chosen(
        refusing_bwrap(tmp_path, "Creating new namespace failed: Operation not permitted"),
        confines=confines,
        notes=notes,
    )
    assert not box.holds
    assert [box.wrap(launch), box.wrap(launch)] == [launch, launch]
    (note,) = notes
    assert "without a sandbox" in note
    assert "Creating new namespace failed" in note
    assert "userns" in note


def test_what_the_settings_insist_on_is_refused_with_the_reason_and_what_to_do(
    tmp_path: Path, launch: Launch, confines: Confines
) -> None:
    box = chosen(Bubblewrap(str(tmp_path)), confines=confines, notes=[], insists=True)
    with pytest.raises(
        ProcessError, match=r"bwrap is not installed \(package bubblewrap\).*\"enabled\": false"
    ):
        box.wrap(launch)


def test_a_network_that_cannot_be_cut_is_refused_not_left_open(launch: Launch, tmp_path: Path) -> None:
    if trouble := Landlock().trouble():
        pytest.skip(trouble)
    cut = Confines(writable=(tmp_path,), network=False)
    box = chosen(Bubblewrap(str(tmp_path)), Landlock(), confines=cut, notes=[], insists=True)
    assert not box.holds
    with pytest.raises(ProcessError, match=r"Landlock cannot cut .* bwrap is not installed"):
        box.wrap(launch)


def test_the_second_best_says_what_it_does_not_hold_and_does_not_vouch(
    tmp_path: Path, launch: Launch, confines: Confines
) -> None:
    if trouble := Landlock().trouble():
        pytest.skip(trouble)
    notes: list[str] = []
    box = chosen(Bubblewrap(str(tmp_path)), Landlock(), confines=confines, notes=notes, auto_allow=True)
    assert box.holds
    assert not box.vouches
    assert box.wrap(launch) != launch
    box.wrap(launch)
    (note,) = notes
    assert "confined by Landlock, for the program bwrap is not installed" in note
    assert ".git/hooks" in note


@pytest.mark.needs("bwrap")
def test_a_sandbox_that_holds_vouches_only_where_the_person_said_so(confines: Confines) -> None:
    kind = Bubblewrap("/usr/bin:/bin")
    assert not chosen(kind, confines=confines, notes=[]).vouches
    assert chosen(kind, confines=confines, notes=[], auto_allow=True).vouches
    assert not chosen(kind, confines=confines, notes=[], auto_allow=True, enabled=False).vouches


def test_turned_off_nothing_is_tried_and_nothing_said(
    tmp_path: Path, launch: Launch, confines: Confines
) -> None:
    tried = tmp_path / "tried"
    kind = refusing_bwrap(tmp_path, f"' > {tried}; echo '")
    notes: list[str] = []
    box = chosen(kind, confines=confines, notes=notes, enabled=False)
    assert box.wrap(launch) is launch
    assert not box.holds
    assert notes == []
    assert not tried.exists()


def test_the_trial_is_made_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho tried >> {log}\nexit 0\n")
    program.chmod(0o755)
    for _ in range(3):
        assert found_among([Bubblewrap(f"{tmp_path}:/usr/bin:/bin")]).troubles == ()
    assert log.read_text() == "tried\n"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("bwrap: setting up uid map: Permission denied", "userns"),
        ("bwrap: No permissions to create a new namespace, likely because …", "userns"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "/proc"),
        ("", "without a word"),
    ],
)
def test_complaints_of_bubblewrap_are_explained(said: str, meant: str) -> None:
    assert meant in explained(said)


def test_the_profile_for_macos_names_inner_paths_after_outer_ones(tmp_path: Path) -> None:
    project, secret = tmp_path / 'a "quoted" project', tmp_path / "home/.ssh"
    hooks, shown = project / ".git/hooks", secret / "known_hosts"
    for path in (hooks, secret):
        path.mkdir(parents=True)
    shown.touch()
    text = profile(
        Confines(
            writable=(project,),
            kept=(hooks,),
            hidden=(secret, tmp_path / "absent"),
            shown=(shown,),
            network=False,
        )
    )
    lines = text.splitlines()
    assert lines[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert "(deny network*)" in lines
    quoted = str(project).replace('"', '\\"')
    order = [
        lines.index(f'(allow file-write* (subpath "{quoted}"))'),
        lines.index(f'(deny file-write* (subpath "{quoted}/.git/hooks"))'),
    ]
    assert order == sorted(order)
    assert lines.index(f'(deny file-read* (subpath "{secret}"))') < lines.index(
        f'(allow file-read* (subpath "{shown}"))'
    )
    assert "absent" not in text
    assert text.count("(") == text.count(")")
    wrapped = Seatbelt().wrap(
        Launch(argv=("sh", "-c", "x"), cwd=project, env={}, stdout=1, stderr=2), Confines(writable=())
    )
    assert wrapped.argv[:2] == ("/usr/bin/sandbox-exec", "-p")
    assert wrapped.argv[3:] == ("sh", "-c", "x")
