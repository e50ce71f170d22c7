"""The catalogue of arithmetic specifications that `make verify` and `make explore` hold circuits to."""

from golden.specifications import blocks, floats, functions, integers
from golden.specifications.core import Port, Specification, Values, operands

_SOURCES = (integers, floats, blocks, functions)


def find(name: str) -> Specification:
    """The specification called `name`; raises `ValueError` with near names."""
    for source in _SOURCES:
        found = source.find(name)
        if found is not None:
            return found
    import difflib

    near = difflib.get_close_matches(name, catalogue(), 3)
    raise ValueError(
        f"no specification {name!r}; near: {', '.join(near) or 'none'}; all: `python -m scripts verify list`"
    )


def catalogue() -> list[str]:
    """Names: every floating-point specification, and an example of each integer family (any width up to 64 works)."""
    return [name for source in _SOURCES for name in source.names()]


__all__ = ["Port", "Specification", "Values", "catalogue", "find", "operands"]
