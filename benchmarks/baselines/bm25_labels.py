"""BM25 over label names; run by a Python that has bm25s: bm25_labels.py FILE.

FILE is JSON with names, texts, some (the numbers of names to rank) and top_k; the names found for each text, best
first, replace it.
"""

import json
import sys
from pathlib import Path


def main(file: Path) -> None:
    import bm25s
    import Stemmer

    said = json.loads(file.read_text())
    stemmer = Stemmer.Stemmer("english")
    names = [said["names"][i] for i in said["some"]]
    retriever = bm25s.BM25()
    retriever.index(bm25s.tokenize(names, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    texts = bm25s.tokenize(said["texts"], stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
    ids, scores = retriever.retrieve(texts, k=min(said["top_k"], len(names)), show_progress=False)
    found = [
        [said["some"][i] for i, score in zip(row, values, strict=True) if score > 0]
        for row, values in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
    file.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
