"""The teammate's end of the channel to its lead."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.backends import Line
from shoal.core.clock import Clock
from shoal.team.line_desk import LineDesk
from shoal.team.purse_afar import PurseAfar, Rules
from shoal.wire import outpost as words


class LeadLink:
    def __init__(self, line: Line, rules: Rules, clock: Clock) -> None:
        self._line = line
        self.desk = LineDesk(self.send)
        self.purse = PurseAfar(rules, clock, self.send)

    def send(self, said: words.Up) -> None:
        self._line.send(words.word(said))

    async def listen(self, obey: Callable[[words.Down], None]) -> None:
        """Receive until the lead is gone; `handle_message` gets everything that is not an answer."""
        while (message := await self._line.receive()) is not None:
            match words.down(message):
                case words.Granted() as granted:
                    self.purse.granted(granted)
                case words.Answers() as answers:
                    self.desk.answered(answers)
                case said:
                    obey(said)
