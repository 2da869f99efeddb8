"""Sessions as files: journal, transcripts, questions, results and usage."""
