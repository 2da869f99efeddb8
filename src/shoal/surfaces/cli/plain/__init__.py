"""Plain terminal, line by line: scrolling output, an input prompt, and questions at that prompt."""
