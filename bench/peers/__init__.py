"""Other agent libraries, each in an environment of its own, asked the same questions as Shoal.

The files named `with_…` run inside those environments: they know the standard library, `questions.py` and
their own library, nothing of Shoal or of the rest of the bench.
"""
