"""Mailboxes as files."""
