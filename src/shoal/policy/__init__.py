"""Whether a call is allowed."""
