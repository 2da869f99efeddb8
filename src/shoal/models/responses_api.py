"""Models behind the Responses API: OpenAI's newest, and compatible servers."""

from __future__ import annotations

import re

from msgspec import structs

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import ThinkingBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
)
from shoal.core.errors import BadRequest
from shoal.models.model_endpoint import ModelEndpoint
from shoal.models.provider_json import encode_json
from shoal.models.reasoning_items import has_reasoning_item
from shoal.models.reply_stream import ReplyStreamReader
from shoal.models.responses_body import ResponsesApiDialect, build_responses_body
from shoal.models.responses_stream import ResponsesApiReplyAssembler

_CANNOT_DECRYPT = r"(?i)invalid_encrypted_content|encrypted content.{0,80}(?:could not|cannot|can't)"
"""Reasoning of another account, or too old."""
_NO_ENCRYPTED_REASONING = (
    r"(?i)encrypted.content.{0,40}not supported|reasoning\.encrypted_content|parameter: 'include"
)
_NO_SUMMARY = r"(?i)reasoning[ ._]summar"
_NO_REASONING = r"(?i)reasoning.{0,20}(?:is|are)? ?not supported|reasoning\.effort"


class ResponsesApiModel:
    """Model behind the Responses API. Adapts to what a server's errors say it accepts."""

    def __init__(self, card: ModelCard, endpoint: ModelEndpoint, dialect: ResponsesApiDialect) -> None:
        self._card = card
        self._endpoint = endpoint
        self._dialect = dialect
        self._unreadable_signatures: set[str] = set()

    @property
    def card(self) -> ModelCard:
        return self._card

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        while True:
            body = build_responses_body(
                request, self._card, self._dialect, unreadable=self._unreadable_signatures
            )
            try:
                return await self._send_request(encode_json(body), request, on_delta)
            except BadRequest as error:
                if not self._adapt_dialect_to_error(str(error), request):
                    raise

    async def _send_request(self, body: bytes, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        assembler = ResponsesApiReplyAssembler(self._endpoint.target, request.messages)
        reader = ReplyStreamReader(self._endpoint.target, assembler, on_delta)
        await on_delta(ModelAttemptStartedDelta())
        await self._endpoint.post_request(body, reader.feed, reader.count_events)
        return assembler.build_reply()

    def _adapt_dialect_to_error(self, error_text: str, request: ModelRequest) -> bool:
        """Adapt to what the complaint says about the server. Return True if something changed."""
        if re.search(_CANNOT_DECRYPT, error_text):
            sent = {
                block.signature
                for message in request.messages
                for block in message.content
                if isinstance(block, ThinkingBlock) and has_reasoning_item(block)
            }
            is_new = not sent <= self._unreadable_signatures
            self._unreadable_signatures |= sent
            return is_new
        dialect = self._dialect
        if re.search(_NO_ENCRYPTED_REASONING, error_text):
            self._dialect = structs.replace(dialect, encrypted_reasoning=False)
        elif re.search(_NO_SUMMARY, error_text):
            self._dialect = structs.replace(dialect, reasoning_summary=False)
        elif re.search(_NO_REASONING, error_text):
            self._dialect = structs.replace(dialect, reasoning_effort=False)
        return self._dialect != dialect

    async def aclose(self) -> None:
        await self._endpoint.aclose()
