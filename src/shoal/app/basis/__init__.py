"""What a session is built on: what was asked for, what it goes on from, and what its lead is given."""
