"""Tags titles with concepts of a vocabulary, also with those that no title had in training.

python examples/new_labels.py FOLDER [N_TITLES]

FOLDER has train.jsonl.xz and test.jsonl.xz, lines of {"text": …, "labels": […]}, and vocabulary.tsv.xz, the concepts
that labels are. N_TITLES of each file are taken, evenly spread.
"""

from __future__ import annotations

import sys
from pathlib import Path

import umpteen
from umpteen.tagging.channels import describe_channels


def read(file: Path, n_titles: int) -> tuple[list[str], list[list[str]]]:
    corpus = umpteen.read_corpus(file)
    step = max(1, len(corpus.texts) // n_titles)
    return corpus.texts[::step], corpus.labels[::step]


def main(folder: Path, n_titles: int = 5000) -> None:
    vocabulary = umpteen.read_vocabulary(folder / "vocabulary.tsv.xz", language="en")
    tagger = umpteen.Tagger("dismec", vocabulary=vocabulary, channels=["rows", "terms", "label-text"])
    tagger.fit(*read(folder / "train.jsonl.xz", n_titles))
    print(describe_channels(tagger.channels_))

    counts = tagger.fitted().train_counts.counts
    new = {name for name, count in zip(tagger.classes_, counts, strict=True) if count == 0}
    print(f"{len(tagger.classes_):,} labels, {len(new):,} of them of no title that it was trained on")

    shown = 0
    titles, labels = read(folder / "test.jsonl.xz", n_titles)
    for title, right, found in zip(titles, labels, tagger.suggest(titles, top_k=5), strict=True):
        hits = [name for name, _ in found if name in right and name in new]
        if not hits or shown == 5:
            continue
        shown += 1
        terms = tagger.explain(title, hits[0]).terms
        why = f"its term {terms[0]['text']!r} at {terms[0]['places']}" if terms else "its words"
        print(f"\n{title}\n  new and right: {hits[0]}, by {why}")
        for (name, probability), uri in zip(found, found.uris, strict=True):
            print(f"  {probability:.2f}  {name}{' (new)' if name in new else ''}  {uri}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
