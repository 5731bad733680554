"""Tags titles with concepts of a vocabulary, also with those that no title had in training.

python examples/new_labels.py FOLDER [N_TITLES]

FOLDER has train.jsonl.xz and test.jsonl.xz, lines of {"text": …, "labels": […]}, and vocabulary.tsv.xz, the concepts
that labels are.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import umpteen
from umpteen.tagging.channels import describe_channels


def main(folder: Path, n_titles: int = 5000) -> None:
    vocabulary = umpteen.read_vocabulary(folder / "vocabulary.tsv.xz", language="en")
    train, test = (
        list(islice(umpteen.iter_corpus(folder / f"{part}.jsonl.xz"), n_titles)) for part in ("train", "test")
    )
    texts, labels = zip(*train, strict=True)

    tagger = umpteen.Tagger("dismec", vocabulary=vocabulary, channels=["rows", "terms", "label-text"])
    tagger.fit(texts, labels)
    print(describe_channels(tagger.channels_))

    counts = tagger.fitted().train_counts.counts
    new = [name for name, count in zip(tagger.classes_, counts, strict=True) if count == 0]
    known = set(new)
    print(f"{len(tagger.classes_):,} labels, {len(new):,} of them in no title that it was trained on")

    shown = 0
    for title, right in test:
        found = tagger.suggest(title, top_k=5)
        hits = [name for name, _ in found if name in right and name in known]
        if hits and shown < 5:
            shown += 1
            term = tagger.explain(title, hits[0]).terms
            why = f", by its term {term[0]['text']!r} at {term[0]['places']}" if term else ", by its words"
            print(f"\n{title}\n  new and right: {hits[0]}{why}")
            for (name, probability), uri in zip(found, found.uris, strict=True):
                print(f"  {probability:.2f}  {name}  {uri}{'  new' if name in known else ''}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
