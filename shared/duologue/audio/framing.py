"""From appended bytes of any length to whole units."""


class OddBytes(ValueError):
    """An append that splits an int16 sample; taking it would turn all later audio into noise."""


class Framer:
    """Collects int16 bytes into units of `unit_samples`; what is left over waits for more.

    The rest is one growing buffer, so that many tiny appends cost no more than one large append.
    """

    def __init__(self, unit_samples: int) -> None:
        if unit_samples <= 0:
            raise ValueError(f"a unit of {unit_samples} samples")
        self._unit_bytes = 2 * unit_samples
        self._rest = bytearray()

    @property
    def pending(self) -> int:
        """Samples that wait for the rest of their unit."""
        return len(self._rest) // 2

    def push(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The units that `data` completes, each of 2 · `unit_samples` bytes.  Raises `OddBytes` and takes nothing."""
        size = memoryview(data).nbytes
        if size % 2:
            raise OddBytes(f"{size} bytes are no whole number of int16 samples")
        self._rest += data
        whole = len(self._rest) // self._unit_bytes * self._unit_bytes
        if not whole:
            return []
        units = [bytes(self._rest[at : at + self._unit_bytes]) for at in range(0, whole, self._unit_bytes)]
        del self._rest[:whole]
        return units

    def flush(self) -> bytes | None:
        """The last, incomplete unit, zeros at its end, or `None` where nothing is left."""
        if not self._rest:
            return None
        unit = bytes(self._rest).ljust(self._unit_bytes, b"\0")
        self._rest.clear()
        return unit
