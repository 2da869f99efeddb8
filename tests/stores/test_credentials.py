"""Credentials of providers on disk."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from shoal.core.errors import StateFileError
from shoal.stores.files.home.credential_file import (
    get_credentials_path,
    load_provider_credentials,
    store_provider_credentials,
)


@pytest.mark.slow
def test_credentials_stored_at_the_same_time_are_all_kept(home):
    barrier = Barrier(8)

    def store_one(number):
        barrier.wait()
        store_provider_credentials(home, f"provider-{number}", {"KEY": str(number)})

    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(store_one, range(8)))
            assert set(load_provider_credentials(home)) == {f"provider-{number}" for number in range(8)}
            for number in range(8):
                store_provider_credentials(home, f"provider-{number}", None)
            assert not get_credentials_path(home).exists()


def test_a_credentials_path_that_cannot_be_removed_is_named_in_the_error(home):
    get_credentials_path(home).mkdir(parents=True)
    with pytest.raises(StateFileError, match=r"credentials\.json"):
        store_provider_credentials(home, "provider", None)


def test_the_credentials_of_each_provider_are_private_and_replaced_as_a_whole(home):
    assert load_provider_credentials(home) == {}
    store_provider_credentials(home, "one", {"KEY": "a", "URL": "b"})
    store_provider_credentials(home, "two", {"KEY": "c"})
    store_provider_credentials(home, "one", {"KEY": "d"})
    assert load_provider_credentials(home) == {"one": {"KEY": "d"}, "two": {"KEY": "c"}}
    path = get_credentials_path(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes().endswith(b"}\n")
    store_provider_credentials(home, "unknown", None)
    store_provider_credentials(home, "one", None)
    assert load_provider_credentials(home) == {"two": {"KEY": "c"}}
    store_provider_credentials(home, "two", None)
    assert not path.exists()
    store_provider_credentials(home, "two", None)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"p": "sk-secret"}', b'{"p": {"KEY": 1}}', b"\xff"])
def test_damaged_credentials_are_reported_without_their_content(home, content):
    get_credentials_path(home).parent.mkdir(parents=True)
    get_credentials_path(home).write_bytes(content)
    with pytest.raises(StateFileError, match="is not valid") as error:
        load_provider_credentials(home)
    assert error.value.path == get_credentials_path(home)
    assert "secret" not in f"{error.value}{error.value.__cause__}"
    with pytest.raises(StateFileError):
        store_provider_credentials(home, "p", {"KEY": "x"})
    assert get_credentials_path(home).read_bytes() == content
