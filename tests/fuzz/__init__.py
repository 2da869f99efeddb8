"""Random input from outside: readers and judges return a value, or raise the errors they name."""
