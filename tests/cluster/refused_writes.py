"""Writes that the database refused because the lease of their process had ended, as its log shows them."""

from __future__ import annotations

import re

from postgres_server import PostgresServer

_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d .*?\[\d+\] (\w+):  ", re.MULTILINE)
_FENCED = re.compile(r"execute .*FROM shoal\.holders WHERE epoch = \$1 FOR KEY SHARE", re.DOTALL)
_EPOCH = re.compile(r"parameters: \$1 = '(\d+)'", re.IGNORECASE)
_ENDED = re.compile(r"the lease of (\d+) has ended")
_WATCH = (
    "CREATE TABLE public.ended_leases (epoch bigint, at timestamptz DEFAULT clock_timestamp())",
    "CREATE FUNCTION public.log_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO public.ended_leases VALUES (OLD.epoch); "
    "RAISE LOG 'the lease of % has ended', OLD.epoch; RETURN NULL; END $$",
    "CREATE TRIGGER log_lease AFTER DELETE ON shoal.holders FOR EACH ROW EXECUTE FUNCTION public.log_lease()",
)


class RefusedWrites:
    """Reads the log of a server from here on. A process is known by its epoch."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self._log = server.directory / "log"
        self._start = self._log.stat().st_size
        settings = {"log_min_duration_statement": 0, "log_parameter_max_length": 100}
        server.execute(
            *(f"ALTER DATABASE {database} SET {name} = {value}" for name, value in settings.items()),
            *_WATCH,
            database=database,
        )

    def count(self, epoch: int) -> int:
        """Return how many writes a process tried after its lease had ended."""
        with self._log.open(errors="replace") as log:
            log.seek(self._start)
            text = log.read()
        found, has_ended, is_fenced = 0, False, False
        places = [*_ENTRY.finditer(text)]
        for place, end in zip(places, [*(each.start() for each in places[1:]), len(text)], strict=True):
            entry = text[place.end() : end]
            if place[1] == "DETAIL":
                parameters = _EPOCH.search(entry)
                found += has_ended and is_fenced and parameters is not None and int(parameters[1]) == epoch
                continue
            is_fenced = _FENCED.search(entry) is not None
            ended = _ENDED.match(entry)
            has_ended = has_ended or (ended is not None and int(ended[1]) == epoch)
        return found
