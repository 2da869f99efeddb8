"""Stored reports: an agent's report is shortened for another's conversation and stored in full."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from shoal.core.ids import AgentId
from shoal.core.ports import ResultStore

CHARACTERS_PER_TOKEN = 4
_NOTIFICATION_OVERHEAD = 1_600
"""Characters reserved for the rest of a notification: paths, evidence, usage."""


class AgentReportExcerpt(Struct, frozen=True, kw_only=True):
    """Report that was stored in full, and its excerpt."""

    excerpt: str
    size: int
    digest: str
    path: Path | None
    """File with the full report; None if the excerpt is complete."""


def excerpt_and_store_long_report(
    text: str, agent: AgentId, completion: str, results: ResultStore, *, tokens: int
) -> AgentReportExcerpt:
    """Store a report that is too long to be shown in full."""
    limit = max(200, tokens * CHARACTERS_PER_TOKEN - _NOTIFICATION_OVERHEAD)
    content = text.encode("utf-8", "surrogateescape")
    digest = sha256(content).hexdigest()
    if len(text) <= limit:
        return AgentReportExcerpt(excerpt=text, size=len(text), digest=digest, path=None)
    path = results.save_result(f"{agent}-{completion}.md", content)
    head, tail = text[: limit * 3 // 4], text[-limit // 4 :]
    left_out = len(text) - len(head) - len(tail)
    excerpt = f"{head}\n[… {left_out:,} of {len(text):,} characters are omitted here …]\n{tail}"
    return AgentReportExcerpt(excerpt=excerpt, size=len(text), digest=digest, path=path)
