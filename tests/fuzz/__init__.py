"""Fuzzers: any bytes, any damage, any request; and an error that says so, or the truth, each time.

    pip install atheris; apt-get install clang
    python -m tests.fuzz text --cpu-minutes 30       # cpp/fuzz/text_reader_fuzz.cpp: libFuzzer with ASan and UBSan
    python -m tests.fuzz readers --cpu-minutes 30    # JSONL, CSV, TSV, npz, svmlight, names, streams: atheris
    python -m tests.fuzz loader --cpu-minutes 30     # damaged model directories, special files in them: atheris
    python -m tests.fuzz http --cpu-minutes 30       # requests to the server's application: atheris
    python -m tests.fuzz sockets --cpu-minutes 30    # bytes to the server's sockets: atheris
    python -m tests.fuzz models --mutations 20000    # damaged model directories, drawn, in processes of their own
    python -m tests.fuzz values                      # every value and array of a model by the worst there are

The first five are guided by coverage; where there is no atheris, `--engine own` guides all but the first. With
`--record tests/records/fuzz.md` a run keeps its line on that page. Inputs that broke something are kept in
tests/corpora/, and tests/test_fuzz.py runs them, and a few thousand mutations more, with every test run.
"""
