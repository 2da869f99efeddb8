"""The channel between a lead and a teammate's process: budget, questions and status."""
