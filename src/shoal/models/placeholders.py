"""Placeholders for values that differ between two runs of one job: directory, home, session, date.

A recording holds the placeholders, so that it can be replayed in another place and on another day.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shoal.core.text.redaction import KEY_SHAPE_REDACTOR, SecretRedactor

_MIN_CHARACTERS = 4
"""Characters; shorter texts occur by chance."""


class RecordingPlaceholderReplacer:
    def __init__(self, real: Mapping[str, str], secrets: SecretRedactor = KEY_SHAPE_REDACTOR) -> None:
        """`real` maps each name to its text in this run, as in `{"cwd": "/home/me/project"}`.

        Secrets get placeholders too, which are never restored: a recording may be shared.
        """
        self._secrets = secrets
        pairs = [
            (_encode_json_string_content(text), _format_placeholder(name))
            for name, text in real.items()
            if len(text) >= _MIN_CHARACTERS
        ]
        # Longest first: the project may be inside the home directory.
        self._pairs = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)

    def hide_values(self, json: bytes) -> bytes:
        for real, placeholder in self._pairs:
            json = json.replace(real, placeholder)
        return self._secrets.redact_bytes(json)

    def restore_values(self, json: bytes) -> bytes:
        for real, placeholder in self._pairs:
            json = json.replace(placeholder, real)
        return json


NO_PLACEHOLDERS = RecordingPlaceholderReplacer({})


def _encode_json_string_content(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1]


def _format_placeholder(name: str) -> bytes:
    return f"{{{{shoal:{name}}}}}".encode()
