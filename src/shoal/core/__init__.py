"""The nouns of Shoal and their rules: pure, and importing nothing above."""
