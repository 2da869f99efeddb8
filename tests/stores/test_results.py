from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.core.errors import StoreError
from shoal.stores.files.places import create_new, create_whole, write_whole
from shoal.stores.files.results import FileResults

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
@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=()), max_size=300))
def test_a_hostile_name_stays_inside_and_keeps_its_content(tmp_path, name):
    results = FileResults(tmp_path / "results")
    path = results.keep(name, b"content")
    assert path.resolve().parent == (tmp_path / "results").resolve()
    assert path.read_bytes() == b"content"
    assert not path.name.startswith((".", "-"))


def test_names_that_clean_to_the_same_do_not_meet(tmp_path):
    results = FileResults(tmp_path)
    paths = [results.keep(name, name.encode()) for name in ("a/b", "a-b", "a?b", "a-b")]
    assert len(set(paths)) == 4
    assert [path.read_bytes() for path in paths] == [b"a/b", b"a-b", b"a?b", b"a-b"]
    assert results.keep("call.txt", b"1").name == "call.txt"
    assert results.keep("call.txt", b"2").name == "call-2.txt"


@pytest.mark.spec("HOM-05")
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="nothing counts what is written")
def test_a_name_that_comes_again_and_again_does_not_cost_more_each_time(tmp_path):
    results, content = FileResults(tmp_path / "results"), b"x" * 10_000
    before = written()
    paths = [results.keep("call_1.txt", content) for _ in range(50)]
    assert len(set(paths)) == 50
    assert written() - before < 2 * 50 * len(content)


def written():
    """Bytes that this process has written, as the system counts them."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["wchar"])


def test_a_result_is_private_and_leaves_no_temporary_file(tmp_path):
    path = FileResults(tmp_path / "results").keep("t1", b"x" * 1_000_000)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["t1"]


def test_a_result_that_cannot_be_written_is_an_error_with_its_place(tmp_path):
    (tmp_path / "results").write_text("a file stands here")
    with pytest.raises(StoreError, match="results"):
        FileResults(tmp_path / "results").keep("t1", b"x")


def test_the_first_whole_file_stands(tmp_path):
    path = tmp_path / "answer.json"
    assert create_whole(path, b"first")
    assert not create_whole(path, b"second")
    assert path.read_bytes() == b"first"
    write_whole(path, b"third")
    assert path.read_bytes() == b"third"
    assert [file.name for file in tmp_path.iterdir()] == ["answer.json"]


def test_a_new_file_is_written_where_it_stands_and_one_that_is_there_is_replaced_whole(tmp_path):
    path = tmp_path / "new" / "deep" / "file"
    create_new(path, b"first")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    held = path.open("rb")
    create_new(path, b"second")
    assert path.read_bytes() == b"second"
    with held:
        assert held.read() == b"first"
    assert list(path.parent.iterdir()) == [path]


def test_a_new_file_that_cannot_be_written_is_an_error_that_says_where(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StoreError, match="taken"):
        create_new(tmp_path / "taken" / "file", b"x")
