"""The pages of docs/reference, each made from the code it tells of."""
