"""What is between agents: boards, mailboxes, rosters; for the runtime, people and other programs."""
