"""Bytes that requests, decoded and not, and answers may hold in memory at once."""

from __future__ import annotations

from umpteen.serving.problems import overloaded

#: A request that holds at most this is never refused.
_SMALL = 1 << 16


class Budget:
    """How many bytes are held, and the limit. A large answer that its client does not read counts until it is written
    or times out."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0

    def take(self, n_bytes: int, own: int) -> None:
        """Counts bytes that are held from now on, or refuses them. A lone request may exceed the budget.

        Parameters
        ----------
        own
            What the same request already holds.
        """
        if own + n_bytes > _SMALL and self.held > own and self.held + n_bytes > self.most:
            raise overloaded(f"requests and answers already hold {self.held} bytes; try again later")
        self.held += n_bytes

    def release(self, n_bytes: int) -> None:
        self.held -= n_bytes
