"""Models behind Chat Completions: OpenAI's own, and every server that imitates it."""

from __future__ import annotations

import re

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

_NO_TOOLS = re.compile(
    r"not support tool|tools\b.{0,40}\b(?:is|are) not supported|requires --jinja|enable-auto-tool-choice",
    re.IGNORECASE,
)
"""What servers say whose model, or whose start-up options, know no tools."""


class ChatModel:
    """A server that knows no tools says so at the first request; from then on they are emulated."""

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
            return await self._ask(encoded(body_of(request, self._card, self._dialect)), request, hear)
        except (BadRequest, ServerFault) as error:
            if not request.tools or not _NO_TOOLS.search(str(error)):
                raise
            self._emulates = True
            return await self._reply_emulated(request, hear)

    async def _ask(self, body: bytes, request: Request, hear: Hear) -> Reply:
        assembly = ChatAssembly(self._endpoint.asked, request.messages)
        listening = Listening(self._endpoint.asked, assembly, hear, ended=assembly.ended)
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
