"""What outlives one loop: questions for people, doors into a live run."""
