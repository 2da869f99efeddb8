"""Placeholders for values that differ between two runs of one job: directory, home, session, date.

A recording holds the placeholders, so that it can be replayed in another place and on another day.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shoal.core.secrets import SHAPES_ALONE, Secrets

_SHORTEST = 4
"""Characters; shorter texts occur by chance."""


class StandIns:
    def __init__(self, real: Mapping[str, str], secrets: Secrets = SHAPES_ALONE) -> None:
        """`real` maps each name to its text in this run, as in `{"cwd": "/home/me/project"}`.

        Secrets get placeholders too, which are never restored: a recording may be shared.
        """
        self._secrets = secrets
        named = [(_in_json(text), _stand_in(name)) for name, text in real.items() if len(text) >= _SHORTEST]
        # Longest first: the project may be inside the home directory.
        self._pairs = sorted(named, key=lambda pair: len(pair[0]), reverse=True)

    def hide(self, json: bytes) -> bytes:
        for real, stand_in in self._pairs:
            json = json.replace(real, stand_in)
        return self._secrets.redacted_bytes(json)

    def show(self, json: bytes) -> bytes:
        for real, stand_in in self._pairs:
            json = json.replace(stand_in, real)
        return json


NONE = StandIns({})


def _in_json(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1]


def _stand_in(name: str) -> bytes:
    return f"{{{{shoal:{name}}}}}".encode()
