"""Stand-ins for what differs between two runs of one job: the directory, the home, the session, the day.

A recording holds the stand-ins, so that it can be played in another place and on another day.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shoal.core.secrets import SHAPES_ALONE, Secrets

_SHORTEST = 4
"""Characters; shorter texts occur by chance."""


class StandIns:
    def __init__(self, real: Mapping[str, str], secrets: Secrets = SHAPES_ALONE) -> None:
        """`real` gives the text of this run for each name, as in `{"cwd": "/home/me/project"}`.

        Secrets have stand-ins too, which are never shown again: a recording is given away.
        """
        self._secrets = secrets
        named = [(_in_json(text), _stand_in(name)) for name, text in real.items() if len(text) >= _SHORTEST]
        # The longest first: the project may lie in the home.
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
