"""Models over HTTP, with a page: thin, since each request becomes the call a Python user would write.

    settings.py      what may be set, and the limits
    server.py        from settings to a running server
    supervisor.py    keeps the workers running; watching.py looks at model directories and tokens, trial.py tries a
                     changed model, versions.py says which directory is meant
    worker.py        a process that answers requests; listening.py: its sockets
    connection.py    bytes become requests; exchange.py: one of them; connections.py: all of them, within limits
    gate.py          around every request: hosts.py, cors.py, tokens.py, budget.py, request_ids.py, counts.py
    app.py           routes
    schema.py        JSON in and out; openapi.py says the same to machines
    served.py        a model directory that answers requests
    batching.py      many small requests become few kernel calls
    logs.py          what the server writes about itself
    page/            what a browser shows: no build step, nothing from elsewhere

Needs ``pip install 'umpteen[serve]'``.
"""
