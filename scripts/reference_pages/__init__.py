"""The pages of docs/reference, each generated from the code it describes."""
