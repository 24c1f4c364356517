"""One kind of finding a file: what is measured, what is said of it, what the page shows.

Every module of this package is found by itself. It is imported without torch, for the report draws what was stored; what
a measurement computes with is imported where it measures. A piece of the page that no other draws lies beside it as .html.j2.
"""
