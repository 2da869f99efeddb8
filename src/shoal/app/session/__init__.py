"""The session: how it is built, how it lives, and what people and programs do with it."""
