"""Usage and prices: tokens as the provider counted them, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from shoal.core.keyword_checks import CheckedStruct


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """Tokens of one or more requests. `input_tokens` excludes tokens read from or written to the cache."""

    input_tokens: int = 0
    """Tokens that were read and are not in a cache."""
    output_tokens: int = 0
    """Tokens that the model wrote."""
    cache_creation_input_tokens: int = 0
    """Tokens that were read and written to the cache."""
    cache_read_input_tokens: int = 0
    """Tokens that were read from the cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens - other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens - other.cache_read_input_tokens,
        )

    @property
    def prompt_tokens(self) -> int:
        """All tokens that the model read."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens

    @property
    def total_tokens(self) -> int:
        """All tokens that were read and written."""
        return self.prompt_tokens + self.output_tokens

    @property
    def is_count_of_reply(self) -> bool:
        """True if it is a plausible count for a request with a reply: neither of them is ever empty."""
        return (
            self.input_tokens >= 0
            and self.cache_creation_input_tokens >= 0
            and self.cache_read_input_tokens >= 0
            and self.prompt_tokens > 0
            and self.output_tokens > 0
        )


class UsageAndCostTotals(Struct, frozen=True, kw_only=True):
    """Total usage and cost of several requests."""

    requests: int = 0
    usage: Usage = Usage()
    usd: float = 0.0
    unpriced: int = 0
    """Number of requests with an unknown price; `usd` excludes them."""

    def __add__(self, other: UsageAndCostTotals) -> UsageAndCostTotals:
        return UsageAndCostTotals(
            requests=self.requests + other.requests,
            usage=self.usage + other.usage,
            usd=self.usd + other.usd,
            unpriced=self.unpriced + other.unpriced,
        )


class SessionSpending(Struct, frozen=True, kw_only=True):
    """Spending of a session with all its agents."""

    usd: float | None
    """Dollars; None if the price of a model is unknown."""
    usage: Usage
    """Tokens of all requests."""
    by_model: Mapping[str, tuple[Usage, float]]
    """Tokens and dollars for each model."""


class TokenPrice(CheckedStruct, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    input: float
    """Dollars for a million input tokens."""
    output: float
    """Dollars for a million output tokens."""
    cache_write: float | None = None
    """Dollars for a million tokens written to the cache."""
    cache_read: float | None = None
    """Dollars for a million tokens read from the cache."""
    beyond: LongPromptPrice | None = None
    """Prices for long prompts."""

    def compute_cost(self, usage: Usage) -> float:
        """Return the cost of one request in dollars."""
        if self.beyond is not None and usage.prompt_tokens > self.beyond.tokens:
            return self.beyond.price.compute_cost(usage)
        write_price = self.input * 1.25 if self.cache_write is None else self.cache_write
        read_price = self.input if self.cache_read is None else self.cache_read
        return (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_creation_input_tokens * write_price
            + usage.cache_read_input_tokens * read_price
        ) / 1_000_000


class LongPromptPrice(Struct, frozen=True, kw_only=True):
    """Price that applies to a whole request if its prompt has more than `tokens` tokens."""

    tokens: int
    """Tokens of a prompt up to which the normal price applies."""
    price: TokenPrice
    """Price of a request with a longer prompt."""


class ModelCard(CheckedStruct, frozen=True, kw_only=True):
    """Static facts about a model. `price` is None if it is unknown."""

    id: str
    """Name that the provider uses."""
    provider: str
    """Name of the provider."""
    window: int = 128_000
    """Context window in tokens."""
    max_output: int = 8_192
    """Maximum length of a reply in tokens."""
    price: TokenPrice | None = None
    """Prices; None if they are unknown, and then dollar limits cannot be enforced."""
    images: bool = True
    """True if messages may contain images."""
    tools: bool = True
    """False if the model cannot call tools."""
    api: Literal["chat", "responses"] | None = None
    """API that the user chose for a provider with both; None selects the default."""
