"""Text: escaping, redaction, formatting, diffs and JSON Schema."""
