"""What a lead and a teammate in a process of its own say to each other over their line ⇄ types.

Mail goes through inboxes and events to the journal, wherever a teammate runs. The line carries the rest:
how the teammate stands, what it asks of the purse and the desk, and what the lead wants done at once.
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


# From the teammate


class Ready(_Word, frozen=True, tag="Ready"):
    started: AgentStarted
    resolved: Resolved
    prompt: str = ""
    """What is to be its first message."""


class Refused(_Word, frozen=True, tag="Refused"):
    """It cannot be what it is wanted to be; the process ends."""

    why: str


class Stands(_Word, frozen=True, tag="Stands"):
    state: MemberState
    claiming: bool = False
    claims: bool = True


class Pong(_Word, frozen=True, tag="Pong"):
    number: int
    busy: bool


class Withdrawn(_Word, frozen=True, tag="Withdrawn"):
    """It waits no longer for the answer to what it asked by mail."""

    request: str


class Agreed(_Word, frozen=True, tag="Agreed"):
    """It shuts down as it was asked to."""

    request: str


class Left(_Word, frozen=True, tag="Left"):
    """Its last word."""

    status: End
    text: str
    detail: str
    work: KeptWork | None = None


class Told(_Word, frozen=True, tag="Told"):
    """An event that it has written to the journal, as it stands there."""

    line: msgspec.Raw


class Asks(_Word, frozen=True, tag="Asks"):
    """A question for a person that does not go by mail."""

    question: MayRun | Choose | ApprovePlan


class Unasks(_Word, frozen=True, tag="Unasks"):
    question: str


class Opens(_Word, frozen=True, tag="Opens"):
    """An account of one of its agents, with limits of its own."""

    agent: AgentId
    kind: str
    limits: Limits


class Holds(_Word, frozen=True, tag="Holds"):
    """Before a request; answered by `Granted`."""

    number: int
    agent: AgentId
    card: ModelCard
    prompt_tokens: int
    max_tokens: int | None


class Settles(_Word, frozen=True, tag="Settles"):
    """What a request cost; `billed`, an attempt of it that may be billed; neither, that it is over."""

    number: int
    usage: Usage | None = None
    billed: bool = False


class Enters(_Word, frozen=True, tag="Enters"):
    """Before it starts an agent; answered by `Granted`."""

    number: int
    kind: str
    depth: int
    again: bool


class Leaves(_Word, frozen=True, tag="Leaves"):
    number: int
    begun: bool


class Works(_Word, frozen=True, tag="Works"):
    """Before the member works; answered by `Granted` when it may."""

    number: int


class Rests(_Word, frozen=True, tag="Rests"):
    """It works no longer, or gives up waiting for it."""


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
    """What a person answered for the whole session; said by whoever heard it, to all others."""

    update: AddRules | AddDirectories | SetMode


class Cut(_Word, frozen=True, tag="Cut"):
    """End the working period, not the teammate."""


class Leave(_Word, frozen=True, tag="Leave"):
    """End; whoever `stays` is taken up again with the session."""

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
    """Raises ValueError for what no teammate of ours says."""
    heard: Up = decoded(message, _decode_up, Up)
    return heard


def down(message: bytes) -> Down:
    """Raises ValueError for what no lead of ours says."""
    heard: Down = decoded(message, _decode_down, Down)
    return heard
