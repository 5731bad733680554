"""Bytes that requests and answers may hold in memory at once."""

from __future__ import annotations

from umpteen.serving.problems import overloaded

#: A request that holds no more than this is never refused.
_SMALL = 1 << 16


class Budget:
    """What is held, and how much may be. A client that asks for much and does not read keeps its answer's bytes here
    until they are written or its time is over."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0

    def take(self, n_bytes: int, own: int) -> None:
        """Notes bytes that are held from now on, or refuses them. Who is alone may hold more than the budget.

        Parameters
        ----------
        own
            What the same request holds already.
        """
        if own + n_bytes > _SMALL and self.held > own and self.held + n_bytes > self.most:
            raise overloaded(f"requests and answers hold {self.held} bytes already; try again later")
        self.held += n_bytes

    def release(self, n_bytes: int) -> None:
        self.held -= n_bytes
