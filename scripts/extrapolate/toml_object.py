"""A frozen dataclass from a TOML table: unknown, missing and wrongly typed keys are refused by name."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class DescriptionError(ValueError):
    """A model's or chip's description that cannot be used; one line: where, what is wrong, what is allowed."""


def read(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; DescriptionError for a missing or malformed one."""
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise DescriptionError(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise DescriptionError(f"{path}: not a TOML file: {error}") from None


def make(cls: type[T], table: dict[str, Any], where: str) -> T:
    """`cls` from `table`; tables inside become the dataclasses of the fields' types."""
    if not isinstance(table, dict):
        raise DescriptionError(f"{where}: a table is wanted, not {table!r}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise DescriptionError(f"{where}: unknown key '{key}'; allowed: {', '.join(fields)}")
    values = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _convert(hints[name], table[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DescriptionError(f"{where}: key '{name}' is missing")
    try:
        return cls(**values)
    except ValueError as error:
        raise DescriptionError(f"{where}: {error}") from None


def _convert(wanted: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(wanted):
        return make(typing.cast(type, wanted), value, where)
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        wanted = next(kind for kind in typing.get_args(wanted) if kind is not type(None))
        return _convert(wanted, value, where)
    if typing.get_origin(wanted) is tuple:
        if not isinstance(value, list):
            raise DescriptionError(f"{where} must be a list, not {value!r}")
        kinds = typing.get_args(wanted)
        kinds = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        if len(kinds) != len(value):
            raise DescriptionError(f"{where} must have {len(kinds)} entries, not {len(value)}")
        return tuple(_convert(kind, item, where) for kind, item in zip(kinds, value, strict=True))
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not wanted:
        raise DescriptionError(f"{where} must be {wanted.__name__}, not {value!r}")
    return value
