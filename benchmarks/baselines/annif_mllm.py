"""Annif's MLLM on a corpus; run by the Python that Annif is installed for: annif_mllm.py FOLDER LANGUAGE.

FOLDER holds the vocabulary (vocabulary.csv or .ttl), train.jsonl and test.jsonl in Annif's shape. Writes
mllm.json there: seconds of processor time to read the vocabulary, train and suggest, and ten URIs for each test text.
"""

import json
import resource
import sys
from itertools import pairwise
from pathlib import Path

CONFIG = """[mllm]
name=MLLM
language={language}
backend=mllm
vocab=vocab({language})
analyzer=snowball({snowball})
limit=10
"""


def seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def main(folder: Path, language: str) -> None:
    from annif.corpus import Document, DocumentFileJSONL
    from annif.registry import AnnifRegistry
    from annif.vocab import VocabFileCSV, VocabFileSKOS

    snowball = {"en": "english", "fi": "finnish"}[language]
    (folder / "projects.cfg").write_text(CONFIG.format(language=language, snowball=snowball))
    registry = AnnifRegistry(str(folder / "projects.cfg"), str(folder / "data"), init_projects=False)
    project = registry.get_project("mllm")
    times = [seconds()]
    if (folder / "vocabulary.csv").exists():
        project.vocab.load_vocabulary(VocabFileCSV(str(folder / "vocabulary.csv")))
    else:
        project.vocab.load_vocabulary(VocabFileSKOS(str(folder / "vocabulary.ttl")))
    times.append(seconds())
    subjects = project.subjects

    project.train(DocumentFileJSONL(str(folder / "train.jsonl"), subjects, language), jobs=1)
    times.append(seconds())
    texts = [json.loads(line)["text"] for line in (folder / "test.jsonl").read_text().splitlines()]
    found = []
    for begin in range(0, len(texts), 32):
        for row in project.suggest([Document(text=text) for text in texts[begin : begin + 32]]):
            best = sorted(row, key=lambda hit: -hit.score)[:10]
            found.append([subjects[hit.subject_id].uri for hit in best])
    times.append(seconds())
    spent = dict(zip(("vocabulary", "train", "suggest"), (b - a for a, b in pairwise(times)), strict=True))
    (folder / "mllm.json").write_text(json.dumps({"seconds": spent, "found": found}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
