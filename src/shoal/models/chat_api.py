"""Models behind Chat Completions: OpenAI and compatible servers."""

from __future__ import annotations

import re

from msgspec import structs

from shoal.core.errors import BadRequest, ServerFault
from shoal.core.messages import Text
from shoal.core.requests import Delta, Hear, Reply, Request, Sent, TextDelta
from shoal.core.usage import ModelCard
from shoal.models.chat_body import Dialect, body_of
from shoal.models.chat_stream import ChatAssembly
from shoal.models.emulation import emulated, response_format, understood
from shoal.models.hearing import Listening
from shoal.models.http import Endpoint
from shoal.models.json_text import encoded

_NO_TOOLS = (
    r"(?i)not support tool|tools\b.{0,40}\b(?:is|are) not supported|requires --jinja|enable-auto-tool-choice"
)
"""Errors of servers whose model or start-up options do not support tools."""

_MISSES_REASONING = r"(?i)(?:missing|required|must).{0,80}reasoning_content"


class ChatModel:
    """Model behind Chat Completions. Adapts to what a server's errors say it accepts.

    Tools are emulated for a server without tool support; reasoning is sent back to one that requires it.
    """

    def __init__(self, card: ModelCard, endpoint: Endpoint, dialect: Dialect) -> None:
        self._card = card
        self._endpoint = endpoint
        self._dialect = dialect
        self._emulates = not card.tools

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear) -> Reply:
        if request.tools and self._emulates:
            return await self._reply_emulated(request, hear)
        try:
            body = body_of(request, self._card, self._dialect)
            return await self._ask(encoded(body), request, hear)
        except (BadRequest, ServerFault) as error:
            if not self._learned(str(error), request):
                raise
        return await self.reply(request, hear)

    def _learned(self, complaint: str, request: Request) -> bool:
        """Adapt to what the complaint says about the server. Return True if something changed."""
        if request.tools and re.search(_NO_TOOLS, complaint):
            self._emulates = True
            return True
        if re.search(_MISSES_REASONING, complaint) and not self._dialect.reasoning_back:
            self._dialect = structs.replace(self._dialect, reasoning_back=True)
            return True
        return False

    async def _ask(self, body: bytes, request: Request, hear: Hear) -> Reply:
        assembly = ChatAssembly(self._endpoint.asked, request.messages)
        listening = Listening(self._endpoint.asked, assembly, hear)
        await hear(Sent())
        await self._endpoint.ask(body, listening.take)
        return assembly.reply()

    async def _reply_emulated(self, request: Request, hear: Hear) -> Reply:
        body = body_of(emulated(request), self._card, self._dialect)
        body["response_format"] = response_format(request.tools)

        async def hear_no_json(delta: Delta) -> None:
            if not isinstance(delta, TextDelta):
                await hear(delta)

        raw = await self._ask(encoded(body), request, hear_no_json)
        reply = understood(raw, request.messages)
        for block in reply.message.content:
            if isinstance(block, Text):
                await hear(TextDelta(block.text))
        return reply

    async def aclose(self) -> None:
        await self._endpoint.aclose()
