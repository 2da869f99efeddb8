"""Keys that a configured shell command prints."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from shoal.app.settings.foreign_variables import KeyHelperSettings
from shoal.backends.program_runner import run_program
from shoal.core.clock import Clock
from shoal.core.errors import ProcessError, Unauthorized

_HELPER_TIMEOUT = 60.0


class ApiKeyHelper:
    """Runs the command when its last key is too old or was refused; waiting requests share one run."""

    def __init__(self, configured: KeyHelperSettings, env: Mapping[str, str]) -> None:
        self._configured = configured
        self._env = env
        self._key = ""
        self._expires_at = 0.0
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fetch_key(self, clock: Clock, *, refused: str = "") -> str:
        """Return the key; never `refused`, unless the command prints it again. Raises `Unauthorized`."""
        async with self._get_lock():
            if self._key and self._key != refused and clock.monotonic() < self._expires_at:
                return self._key
            self._key = await self._run_command(clock)
            self._expires_at = clock.monotonic() + self._configured.ttl
            return self._key

    def _get_lock(self) -> asyncio.Lock:
        # A process may run several sessions, each with its own loop.
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop = asyncio.Lock(), loop
        return self._lock

    async def _run_command(self, clock: Clock) -> str:
        words = ("/bin/sh", "-c", self._configured.command)
        try:
            result = await run_program(words, self._env, clock, seconds=_HELPER_TIMEOUT)
        except ProcessError as error:
            raise self._build_error(str(error)) from error
        key = result.out.strip()
        if result.status != 0:
            reason = result.err.strip()[-300:]
            raise self._build_error(
                f"it exited with status {result.status}{f': {reason}' if reason else '.'}"
            )
        if not key or any(character.isspace() or not character.isprintable() for character in key):
            raise self._build_error("it must print one key on one line and nothing else.")
        return key

    def _build_error(self, reason: str) -> Unauthorized:
        return Unauthorized(
            f"apiKeyHelper ({self._configured.location}) gave no key: {reason}",
            provider="anthropic",
            model="",
        )
