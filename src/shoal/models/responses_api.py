"""Models behind the Responses API: OpenAI's newest, and compatible servers."""

from __future__ import annotations

import re

from msgspec import structs

from shoal.core.errors import BadRequest
from shoal.core.messages import Thinking
from shoal.core.requests import Hear, Reply, Request, Sent
from shoal.core.usage import ModelCard
from shoal.models.hearing import Listening
from shoal.models.http import Endpoint
from shoal.models.json_text import encoded
from shoal.models.reasoning import is_sealed
from shoal.models.responses_body import ResponsesDialect, body_of
from shoal.models.responses_stream import ResponseAssembly

_CANNOT_OPEN = r"(?i)invalid_encrypted_content|encrypted content.{0,80}(?:could not|cannot|can't)"
"""Reasoning of another account, or too old."""
_NO_SEALING = r"(?i)encrypted.content.{0,40}not supported|reasoning\.encrypted_content|parameter: 'include"
_NO_SUMMARY = r"(?i)reasoning[ ._]summar"
_NO_REASONING = r"(?i)reasoning.{0,20}(?:is|are)? ?not supported|reasoning\.effort"


class ResponsesModel:
    """Model behind the Responses API. Adapts to what a server's errors say it accepts."""

    def __init__(self, card: ModelCard, endpoint: Endpoint, dialect: ResponsesDialect) -> None:
        self._card = card
        self._endpoint = endpoint
        self._dialect = dialect
        self._unread: set[str] = set()

    @property
    def card(self) -> ModelCard:
        return self._card

    async def reply(self, request: Request, hear: Hear) -> Reply:
        while True:
            body = body_of(request, self._card, self._dialect, unread=self._unread)
            try:
                return await self._ask(encoded(body), request, hear)
            except BadRequest as error:
                if not self._learned(str(error), request):
                    raise

    async def _ask(self, body: bytes, request: Request, hear: Hear) -> Reply:
        assembly = ResponseAssembly(self._endpoint.asked, request.messages)
        listening = Listening(self._endpoint.asked, assembly, hear)
        await hear(Sent())
        await self._endpoint.ask(body, listening.take)
        return assembly.reply()

    def _learned(self, complaint: str, request: Request) -> bool:
        """Adapt to what the complaint says about the server. Return True if something changed."""
        if re.search(_CANNOT_OPEN, complaint):
            sent = {
                block.signature
                for message in request.messages
                for block in message.content
                if isinstance(block, Thinking) and is_sealed(block)
            }
            is_new = not sent <= self._unread
            self._unread |= sent
            return is_new
        known = self._dialect
        if re.search(_NO_SEALING, complaint):
            self._dialect = structs.replace(known, sealed=False)
        elif re.search(_NO_SUMMARY, complaint):
            self._dialect = structs.replace(known, summarised=False)
        elif re.search(_NO_REASONING, complaint):
            self._dialect = structs.replace(known, reasons=False)
        return self._dialect != known

    async def aclose(self) -> None:
        await self._endpoint.aclose()
