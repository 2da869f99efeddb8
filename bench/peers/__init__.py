"""Other agent libraries, each in a separate environment, asked the same questions as Shoal.

The files named `with_…` run inside those environments: they use the standard library, `questions.py` and
their own library, nothing of Shoal or of the rest of the bench.
"""
