"""Models behind Chat Completions: OpenAI and compatible servers."""

from __future__ import annotations

import re

from msgspec import structs

from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import TextBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    ModelRetryScheduledDelta,
    StreamDelta,
    TextDelta,
)
from shoal.core.errors import BadRequest, ServerFault
from shoal.models.chat_body import ChatCompletionsApiDialect, build_chat_body, refuse_web_search
from shoal.models.chat_stream import ChatCompletionsReplyAssembler
from shoal.models.model_endpoint import ModelEndpoint
from shoal.models.provider_json import encode_json
from shoal.models.reply_stream import ReplyStreamReader
from shoal.models.tool_emulation import (
    build_emulated_reply_schema,
    emulate_tools_in_prompt,
    parse_emulated_reply,
)

_NO_TOOLS = (
    r"(?i)not support tool|tools\b.{0,40}\b(?:is|are) not supported|requires --jinja|enable-auto-tool-choice"
)
"""Errors of servers whose model or startup options do not support tools."""

_REASONING_REQUIRED = r"(?i)(?:missing|required|must).{0,80}reasoning_content"


class ChatCompletionsApiModel:
    """Model behind Chat Completions. Adapts to what a server's errors say it accepts.

    Tools are emulated for a server without tool support; reasoning is sent back to one that requires it.
    """

    def __init__(self, card: ModelCard, endpoint: ModelEndpoint, dialect: ChatCompletionsApiDialect) -> None:
        self._card = card
        self._endpoint = endpoint
        self._dialect = dialect
        self._emulates_tools = not card.tools

    @property
    def card(self) -> ModelCard:
        return self._card

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        refuse_web_search(request, self._card.id)
        if request.tools and self._emulates_tools:
            return await self._generate_with_emulated_tools(request, on_delta)
        try:
            body = build_chat_body(request, self._card, self._dialect)
            return await self._send_request(encode_json(body), request, on_delta)
        except (BadRequest, ServerFault) as error:
            if not self._adapt_dialect_to_error(str(error), request):
                raise
            billed = isinstance(error, ServerFault) and error.billed
            await on_delta(
                ModelRetryScheduledDelta(
                    reason=str(error), delay=0.0, attempt=1, billed=billed, status=error.status
                )
            )
        return await self.generate_reply(request, on_delta)

    def _adapt_dialect_to_error(self, error_text: str, request: ModelRequest) -> bool:
        """Adapt to what the complaint says about the server. Return True if something changed."""
        if request.tools and re.search(_NO_TOOLS, error_text):
            self._emulates_tools = True
            return True
        if re.search(_REASONING_REQUIRED, error_text) and not self._dialect.reasoning_back:
            self._dialect = structs.replace(self._dialect, reasoning_back=True)
            return True
        return False

    async def _send_request(self, body: bytes, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        assembler = ChatCompletionsReplyAssembler(self._endpoint.target, request.messages)
        reader = ReplyStreamReader(self._endpoint.target, assembler, on_delta)
        await on_delta(ModelAttemptStartedDelta())
        await self._endpoint.post_request(body, reader.feed, reader.count_events)
        return assembler.build_reply()

    async def _generate_with_emulated_tools(
        self, request: ModelRequest, on_delta: DeltaListener
    ) -> ModelReply:
        body = build_chat_body(emulate_tools_in_prompt(request), self._card, self._dialect)
        body["response_format"] = build_emulated_reply_schema(request.tools)

        async def forward_non_text_delta(delta: StreamDelta) -> None:
            if not isinstance(delta, TextDelta):
                await on_delta(delta)

        raw = await self._send_request(encode_json(body), request, forward_non_text_delta)
        reply = parse_emulated_reply(raw, request.messages)
        for block in reply.message.content:
            if isinstance(block, TextBlock):
                await on_delta(TextDelta(block.text))
        return reply

    async def aclose(self) -> None:
        await self._endpoint.aclose()
