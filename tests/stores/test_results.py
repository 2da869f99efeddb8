from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.core.errors import StateFileError
from shoal.stores.files.home.home_paths import (
    create_file_atomically,
    create_or_replace_private_file,
    write_file_atomically,
)
from shoal.stores.files.sessions.result_files import FileResultStore, read_result_sizes

HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/b\\c",
    ".",
    "..",
    "",
    ".bashrc",
    "-rf",
    "$(reboot)",
    "a;b|c&d",
    "nul\x00l",
    "new\nline",
    "x" * 5000,
    "über",
    "\udcff",
    "CON",
    "~root",
]


@pytest.mark.spec("USR-29", "HOM-04")
@settings(
    max_examples=10 * settings().max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(name=st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=()), max_size=300))
def test_a_result_with_a_hostile_name_stays_inside_the_directory(tmp_path, name):
    results = FileResultStore(tmp_path / "results")
    path = results.save_result(name, b"content")
    assert path.resolve().parent == (tmp_path / "results").resolve()
    assert path.read_bytes() == b"content"
    assert not path.name.startswith((".", "-"))


def test_names_with_the_same_safe_form_get_different_files(tmp_path):
    results = FileResultStore(tmp_path)
    paths = [results.save_result(name, name.encode()) for name in ("a/b", "a-b", "a?b", "a-b")]
    assert len(set(paths)) == 4
    assert [path.read_bytes() for path in paths] == [b"a/b", b"a-b", b"a?b", b"a-b"]
    assert results.save_result("call.txt", b"1").name == "call.txt"
    assert results.save_result("call.txt", b"2").name == "call-2.txt"


@pytest.mark.spec("HOM-05")
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="no counter of written bytes")
def test_a_repeated_name_does_not_cost_more_each_time(tmp_path):
    results, content = FileResultStore(tmp_path / "results"), b"x" * 10_000
    before = count_written_bytes()
    paths = [results.save_result("call_1.txt", content) for _ in range(50)]
    assert len(set(paths)) == 50
    assert count_written_bytes() - before < 2 * 50 * len(content)


def count_written_bytes():
    """Return the bytes that this process has written, as counted by the kernel."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["wchar"])


def test_a_result_is_private_and_leaves_no_temporary_file(tmp_path):
    path = FileResultStore(tmp_path / "results").save_result("t1", b"x" * 1_000_000)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(file.name for file in path.parent.iterdir()) == [".sizes", "t1"]
    assert read_result_sizes(path.parent) == {"t1": 1_000_000}


def test_a_result_that_cannot_be_written_raises_an_error_with_its_path(tmp_path):
    (tmp_path / "results").write_text("a file is here")
    with pytest.raises(StateFileError, match="results"):
        FileResultStore(tmp_path / "results").save_result("t1", b"x")


def test_create_atomically_does_not_replace_an_existing_file(tmp_path):
    path = tmp_path / "answer.json"
    assert create_file_atomically(path, b"first")
    assert not create_file_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    write_file_atomically(path, b"third")
    assert path.read_bytes() == b"third"
    assert [file.name for file in tmp_path.iterdir()] == ["answer.json"]


def test_create_private_file_replaces_an_existing_file_atomically(tmp_path):
    path = tmp_path / "new" / "deep" / "file"
    create_or_replace_private_file(path, b"first")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    held = path.open("rb")
    create_or_replace_private_file(path, b"second")
    assert path.read_bytes() == b"second"
    with held:
        assert held.read() == b"first"
    assert list(path.parent.iterdir()) == [path]


def test_a_new_file_that_cannot_be_written_raises_an_error_with_its_path(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StateFileError, match="taken"):
        create_or_replace_private_file(tmp_path / "taken" / "file", b"x")
