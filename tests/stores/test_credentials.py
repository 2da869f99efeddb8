"""Credentials of providers on disk."""

from __future__ import annotations

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
