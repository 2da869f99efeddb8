"""Programs for eight usual jobs with other agent libraries, to compare their sizes with `examples`."""
