"""What stands beside the conversation: agents, board, mail and questions, drawn from a picture of the run."""
