"""Keys of providers on disk: what several store at once is all there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from shoal.core.errors import StoreError
from shoal.stores.files.credentials import credentials_path, store_credentials, stored_credentials


def test_keys_stored_at_the_same_time_are_all_kept(home):
    together = Barrier(8)

    def store(number):
        together.wait()
        store_credentials(home, f"provider-{number}", {"KEY": str(number)})

    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(store, range(8)))
            assert set(stored_credentials(home)) == {f"provider-{number}" for number in range(8)}
            for number in range(8):
                store_credentials(home, f"provider-{number}", None)
            assert not credentials_path(home).exists()


def test_a_place_that_cannot_be_removed_is_named(home):
    credentials_path(home).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"credentials\.json"):
        store_credentials(home, "provider", None)
