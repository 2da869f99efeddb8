"""Panels next to the conversation: agents, board, mail and questions, drawn from the run view."""
