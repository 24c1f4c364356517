"""A class name that would be a script, were it taken for markup."""

HOSTILE = "<img src=x onerror=alert(1)>"
