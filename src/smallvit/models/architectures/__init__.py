"""One architecture a file. Every module of this package is imported, so that a new architecture is one new file."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
