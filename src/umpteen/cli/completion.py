"""What a shell offers as the value of an option. Modules are imported when it asks."""

from __future__ import annotations


def complete_method(incomplete: str) -> list[str]:
    from umpteen.choosing.choice import AUTO
    from umpteen.methods import METHODS

    return [name for name in (AUTO, *METHODS) if name.startswith(incomplete)]


def complete_layout(incomplete: str) -> list[str]:
    from umpteen.labelling.answers import LAYOUTS

    return [name for name in LAYOUTS if name.startswith(incomplete)]
