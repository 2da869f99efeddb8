"""What both terminals share: a person's dialogue with a session, its commands, and the words of it."""
