"""What messages are made of; the messages themselves are in `duologue.bus.messages`."""

import re
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt


class Malformed(ValueError):
    """Bytes that are not the message that their subject carries.  Says what was expected and where, for logs, but not
    what came."""


class Struct(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Base of all messages."""


class Tensor(Struct, frozen=True):
    """An array in C order; `dtype` as numpy spells it with byte order, `"<f8"`."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: npt.NDArray[Any]) -> Self:
        """Raises `ValueError` for arrays of Python objects."""
        if array.dtype.hasobject:
            raise ValueError("an array of objects has no place on the bus")
        little = array.dtype.newbyteorder("<")
        return cls(little.str, array.shape, np.ascontiguousarray(array, little).tobytes())

    def array(self) -> npt.NDArray[Any]:
        """The array, read-only (it shares the message's bytes).  Raises `Malformed`."""
        try:
            dtype = np.dtype(self.dtype)
            if dtype.hasobject or any(size < 0 for size in self.shape):
                raise ValueError("objects, or less than nothing of something")
            return np.frombuffer(self.data, dtype).reshape(self.shape)
        except (ValueError, TypeError, SyntaxError) as error:
            raise Malformed(f"tensor: {without_quotes(error)}") from error


def without_quotes(error: Exception) -> str:
    """msgspec and numpy quote a value that they don't know."""
    return re.sub(r"'.*'|\".*\"", "…", str(error), flags=re.DOTALL)
