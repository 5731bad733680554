"""A newer edition of a vocabulary, with the numbers of the older one."""

from __future__ import annotations

from umpteen.errors import ParamError
from umpteen.vocabulary.concepts import Concept, Vocabulary


def update_vocabulary(old: Vocabulary, new: Vocabulary) -> Vocabulary:
    """The concepts of a new edition: those of the old one keep their numbers, others come after them. What the new
    edition lacks stays, as deprecated, so that old labels can still be named.

    Concepts are the same if they have the same URI; those of a plain list, if the new edition has their name.

    Raises
    ------
    ParamError
        If the new edition has no names in the old one's language.

    Examples
    --------
    >>> from umpteen.vocabulary.concepts import Term
    >>> def concept(uri, name):
    ...     return Concept(uri, [Term(name, "en", "preferred")])
    >>> old = Vocabulary.build([concept("u:2", "sea"), concept("u:1", "fish")])
    >>> new = Vocabulary.build([concept("u:1", "fishes"), concept("u:3", "lake")])
    >>> updated = update_vocabulary(old, new)
    >>> updated.names(), updated.deprecated.tolist()
    (['sea', 'fishes', 'lake'], [True, False, False])
    """
    language = new.language or old.language
    try:
        new.in_language(language)
    except ParamError as error:
        raise ParamError(f"the new vocabulary must have names in the language of the old one: {error}") from error
    concepts: list[Concept] = []
    taken: set[int] = set()
    for i in range(len(old)):
        found = _find_again(old, i, new)
        if found is not None and found not in taken:
            taken.add(found)
            concepts.append(new.concept(found))
        else:
            heir = {} if found is None else {"replaced_by": new.uris[found]}
            concepts.append(old.concept(i)._replace(deprecated=True, **heir))
    concepts += [new.concept(i) for i in range(len(new)) if i not in taken]
    return Vocabulary.build(concepts, language)


def _find_again(old: Vocabulary, concept: int, new: Vocabulary) -> int | None:
    uri = old.uris[concept]
    if uri:
        return new.find_uri(uri)
    found = new.find_all(old.name(concept))
    return found[0] if len(found) == 1 else None
