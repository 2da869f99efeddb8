"""Checks of the machine by `shoal doctor`."""

from __future__ import annotations

from pathlib import Path

from shoal.app.isolation.machine_checks import (
    check_external_programs,
    check_home_directory,
    detect_file_system,
)


def test_a_file_system_is_found_by_its_longest_mount_point(tmp_path: Path) -> None:
    mounts = (
        f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n/dev/sdb {tmp_path}/deep xfs rw 0 0\n"
    )
    assert detect_file_system(tmp_path / "home", mounts) == "nfs4"
    assert detect_file_system(tmp_path / "deep" / "er", mounts) == "xfs"
    assert detect_file_system(tmp_path.parent, mounts) == "ext4"


def test_a_mount_point_with_a_space_is_parsed(tmp_path: Path) -> None:
    mounts = f"/dev/sda / ext4 rw 0 0\n//nas/x {tmp_path}/my\\040share cifs rw 0 0\n"
    assert detect_file_system(tmp_path / "my share" / "home", mounts) == "cifs"


def test_a_home_that_cannot_be_created_is_bad_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    facts = {fact.name: fact for fact in check_home_directory(tmp_path / "file" / "home", "SHOAL_HOME")}
    assert facts["directory"].state == "bad"
    assert "SHOAL_HOME=DIRECTORY" in facts["directory"].advice


def test_a_missing_home_is_fine_and_is_not_created(tmp_path: Path) -> None:
    facts = list(check_home_directory(tmp_path / "new" / "home", "SHOAL_HOME"))
    assert [fact.state for fact in facts] == ["ok", "ok", "ok"]
    assert list(tmp_path.iterdir()) == []


def test_a_missing_program_is_reported_with_its_install_command(tmp_path: Path) -> None:
    findings = tmp_path / "git"
    findings.write_text("#!/bin/sh\n")
    findings.chmod(0o755)
    facts = {fact.name: fact for fact in check_external_programs(path=str(tmp_path))}
    assert (facts["git"].state, facts["git"].value) == ("ok", str(findings))
    assert facts["rg"].state == "warn"
    assert "ripgrep" in facts["rg"].advice
