"""Codec for messages between a lead and a member in a separate process.

Mail goes through inboxes and events go to the journal, wherever a member runs. The channel carries the rest:
the member's state, its requests to the budget and the question broker, and immediate commands of the lead.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from shoal.core.agents import End, KeptWork, Resolved
from shoal.core.caps import Limits, Refusal
from shoal.core.events import AgentStarted
from shoal.core.ids import AgentId
from shoal.core.permissions import AddDirectories, AddRules, SetMode
from shoal.core.questions import Allowed, Approved, ApprovePlan, Choose, Chosen, Denied, MayRun
from shoal.core.teams import MemberState
from shoal.core.usage import ModelCard, Usage
from shoal.wire.content import dump
from shoal.wire.foreign import decoded


class _Word(Struct, frozen=True, kw_only=True, tag_field="type"): ...


# From the member


class Ready(_Word, frozen=True, tag="Ready"):
    started: AgentStarted
    resolved: Resolved
    prompt: str = ""
    """Its first message."""


class Refused(_Word, frozen=True, tag="Refused"):
    """The member cannot start as requested; the process ends."""

    why: str


class Stands(_Word, frozen=True, tag="Stands"):
    state: MemberState
    claiming: bool = False
    claims: bool = True


class Pong(_Word, frozen=True, tag="Pong"):
    number: int
    busy: bool


class Withdrawn(_Word, frozen=True, tag="Withdrawn"):
    """The member no longer waits for the answer to a mail request."""

    request: str


class Agreed(_Word, frozen=True, tag="Agreed"):
    """The member agrees to a shutdown request."""

    request: str


class Left(_Word, frozen=True, tag="Left"):
    """Last message of the member."""

    status: End
    text: str
    detail: str
    work: KeptWork | None = None


class Told(_Word, frozen=True, tag="Told"):
    """An event that the member has written to the journal, as the journal line."""

    line: msgspec.Raw


class Asks(_Word, frozen=True, tag="Asks"):
    """A question for a person that is not sent by mail."""

    question: MayRun | Choose | ApprovePlan


class Unasks(_Word, frozen=True, tag="Unasks"):
    question: str


class Opens(_Word, frozen=True, tag="Opens"):
    """The member opened a budget with limits for one of its agents."""

    agent: AgentId
    kind: str
    limits: Limits


class Holds(_Word, frozen=True, tag="Holds"):
    """Asks to reserve budget before a model request; answered by `GrantDecided`."""

    number: int
    agent: AgentId
    card: ModelCard
    prompt_tokens: int
    max_tokens: int | None


class Settles(_Word, frozen=True, tag="Settles"):
    """Reports the usage of a request, an attempt that may be billed (`billed`), or just its end."""

    number: int
    usage: Usage | None = None
    billed: bool = False


class Enters(_Word, frozen=True, tag="Enters"):
    """Asks to start an agent; answered by `GrantDecided`."""

    number: int
    kind: str
    depth: int
    again: bool


class Leaves(_Word, frozen=True, tag="Leaves"):
    number: int
    begun: bool


class Works(_Word, frozen=True, tag="Works"):
    """Asks to start working; answered by `GrantDecided` when the member may."""

    number: int


class Rests(_Word, frozen=True, tag="Rests"):
    """The member stopped working, or stopped waiting to work."""


# From the lead


class Granted(_Word, frozen=True, tag="Granted"):
    number: int
    refusal: Refusal | None = None


class Answers(_Word, frozen=True, tag="Answers"):
    question: str
    answer: Allowed | Denied | Chosen | Approved


class Ping(_Word, frozen=True, tag="Ping"):
    number: int


class Permits(_Word, frozen=True, tag="Permits"):
    """A person's answer for the whole session; the process that received it sends it to all others."""

    update: AddRules | AddDirectories | SetMode


class Cut(_Word, frozen=True, tag="Cut"):
    """Ends the current work of the member, not the member."""


class Leave(_Word, frozen=True, tag="Leave"):
    """Ends the member; with `stays` it is resumed with the session."""

    why: str
    stays: bool = False


Up: TypeAlias = (
    Ready
    | Refused
    | Stands
    | Pong
    | Withdrawn
    | Agreed
    | Left
    | Told
    | Asks
    | Unasks
    | Opens
    | Holds
    | Settles
    | Enters
    | Leaves
    | Permits
    | Works
    | Rests
)
Down: TypeAlias = Granted | Answers | Ping | Permits | Cut | Leave

_decode_up: Any = msgspec.json.Decoder(Up).decode
_decode_down: Any = msgspec.json.Decoder(Down).decode


def word(message: Up | Down) -> bytes:
    return dump(message)


def up(message: bytes) -> Up:
    """Parse a message of a member; raise ValueError if it is invalid."""
    heard: Up = decoded(message, _decode_up, Up)
    return heard


def down(message: bytes) -> Down:
    """Parse a message of the lead; raise ValueError if it is invalid."""
    heard: Down = decoded(message, _decode_down, Down)
    return heard
