"""Models over HTTP, with a page: thin, since each request becomes the call a Python user would write.

    settings.py   what may be set, and the limits
    schema.py     JSON in and out; openapi.py says the same to machines
    served.py     a model directory that answers requests, and is opened again when it changes
    batching.py   many small requests become few kernel calls
    app.py        routes; gate.py: limits, token, headers and counts around all of them
    server.py     sockets, worker processes, signals
    page/         what a browser shows: no build step, nothing from elsewhere

Needs ``pip install 'umpteen[serve]'``.
"""
