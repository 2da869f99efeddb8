"""Agent loop: call the model, execute its tool calls, check the inbox, until nothing is left to do.

There is one path for every use; a lead, a child and a test differ only in the agent's dependencies.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shoal.agent.agent import Agent
from shoal.agent.asking import ask
from shoal.agent.calls import answer
from shoal.agent.compaction import compact, is_full
from shoal.agent.hooked import enter_item, enter_prompt, sent_back
from shoal.core.caps import Limit, Refusal
from shoal.core.entries import Billing
from shoal.core.errors import BudgetSpent, ContextTooLong
from shoal.core.events import PREVIEW, AssistantSaid, EndReason, Speaker
from shoal.core.ids import RequestId
from shoal.core.messages import Message, user
from shoal.core.requests import Reply

GO_ON = "Your answer was cut at the length limit. Go on exactly where it stopped."
CUTS_IN_A_ROW = 5


class Ended(Struct, frozen=True, kw_only=True):
    reason: EndReason
    text: str = ""
    detail: str = ""
    requests: int = 0
    limit: Limit | None = None
    """Limit that was reached, for `budget` and for a `deadline` set by a budget."""
    cut: Message | None = None
    """Results for calls that this end interrupted."""


async def run(agent: Agent, prompt: Message | None = None, *, by: Speaker = "person") -> Ended:
    """Run the loop. Without a prompt it starts from the inbox. After a limit it can continue later."""
    seconds = agent.purse.begin()
    replies = agent.replies
    agent.halted = ""
    try:
        erased = None if prompt is None else await enter_prompt(agent, prompt, by=by)
        came, lost = await _arrived(agent)
        if agent.halted or ((erased or lost) and not came and (prompt is None or erased)):
            return Ended(reason="blocked", detail=agent.halted or erased or lost)
        if not _is_asked(agent):
            return Ended(reason="done", detail="nothing was said to it")
        if seconds is None:
            return await _rounds(agent)
        async with agent.clock.deadline(seconds):
            return await _rounds(agent)
    except BudgetSpent as spent:
        return _refused(spent.refusal, agent.replies - replies)
    except TimeoutError:
        late = agent.purse.out_of_time()
        if late is None:
            raise
        cut = agent.conversation.interrupt()
        return replace(_refused(late, agent.replies - replies), cut=cut)
    finally:
        agent.permissions.turn_over()
        agent.purse.end()


def _refused(refusal: Refusal, requests: int) -> Ended:
    reason: EndReason = "deadline" if refusal.limit == "seconds" else "budget"
    return Ended(reason=reason, detail=refusal.sentence, requests=requests, limit=refusal.limit)


def _is_asked(agent: Agent) -> bool:
    """Return True if there is a message to answer: queued input may have been withdrawn meanwhile."""
    messages = agent.conversation.messages
    return bool(messages) and messages[-1].role == "user"


async def _rounds(agent: Agent) -> Ended:
    requests = cuts = returns = 0
    parts: list[str] = []
    while True:
        if agent.bounds.max_turns is not None and requests >= agent.bounds.max_turns:
            return Ended(reason="max_turns", requests=requests, detail=f"stopped after {requests} requests")
        if is_full(agent):
            await compact(agent, "auto")

        reply, request = await _ask_with_room(agent)
        requests += 1
        agent.replies += 1
        await _enter(agent, reply, request)
        parts.append(reply.message.text)

        if calls := reply.message.tool_uses:
            await answer(agent, calls)
            parts.clear()
        elif reply.stop_reason == "max_tokens" and reply.message.content and cuts < CUTS_IN_A_ROW:
            cuts += 1
            await agent.add(user(GO_ON), meta=True)
            continue
        elif reply.stop_reason == "pause_turn" and reply.message.content:
            continue

        if agent.halted:
            return Ended(reason="blocked", text="".join(parts), requests=requests, detail=agent.halted)
        came, _ = await _arrived(agent, resting=not calls)
        if came or (not calls and await sent_back(agent, "".join(parts), returns)):
            parts.clear()
            returns = 0 if came else returns + 1
        elif not calls:
            return Ended(reason="done", text="".join(parts), requests=requests, detail=_remark(reply))
        cuts = 0


async def _arrived(agent: Agent, *, resting: bool = False) -> tuple[bool, str]:
    """Add the inbox items. Return True if any was added, and the reason if a hook blocked one."""
    came, lost = False, ""
    while (item := agent.inlet.take(resting=resting and not came)) is not None:
        erased = await enter_item(agent, item)
        came, lost = came or erased is None, erased or lost
    return came, lost


async def _ask_with_room(agent: Agent) -> tuple[Reply, RequestId]:
    try:
        return await ask(agent, agent.request())
    except ContextTooLong:
        await compact(agent, "overflow")
        return await ask(agent, agent.request())


async def _enter(agent: Agent, reply: Reply, request: RequestId) -> None:
    # Every provider rejects a message without content.
    if not reply.message.content:
        return
    billing = Billing(
        message_id=reply.id,
        model=reply.model,
        stop_reason=reply.stop_reason,
        usage=reply.usage,
        request=request,
    )
    await agent.add(reply.message, billing=billing)
    entry = agent.conversation.last
    assert entry is not None
    await agent.tell(
        AssistantSaid(
            agent=agent.identity.agent,
            entry=entry,
            preview=reply.message.text[:PREVIEW],
            tool_uses=len(reply.message.tool_uses),
        )
    )


def _remark(reply: Reply) -> str:
    match reply.stop_reason:
        case "refusal":
            return "the model refused to answer"
        case "max_tokens":
            return "the answer is cut at the model's length limit"
        case _:
            return ""
