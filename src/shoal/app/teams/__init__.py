"""Team state: boards, mailboxes and rosters, for the runtime, users and other programs."""
