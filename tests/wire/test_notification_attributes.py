"""Values in the tags of notifications are quoted as XML attributes."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from hypothesis import given
from hypothesis import strategies as st

from shoal.core.text.control_tags import escape_control_tags
from shoal.wire.notification_text import format_mail_message


@given(st.text(st.sampled_from("ab &<>\"'\n\r\t;é\\")))
def test_a_summary_is_quoted_like_any_xml_attribute(summary: str) -> None:
    text = format_mail_message("ann", "hi", summary=summary or "x")
    assert f" summary={quoteattr(escape_control_tags(summary or 'x'))}>" in text
