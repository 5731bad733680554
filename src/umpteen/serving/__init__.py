"""Models over HTTP, with a page. It is thin: each request becomes the call a Python user would write.

    settings.py      settings and limits
    server.py        from settings to a running server
    supervisor.py    keeps the workers running; watching.py checks model directories and tokens, trial.py tries a
                     changed model, versions.py finds the directory to serve
    worker.py        a process that answers requests; listening.py: its sockets
    connection.py    bytes become requests; exchange.py: one of them; connections.py: all of them, within limits
    gate.py          around every request: hosts.py, cors.py, tokens.py, budget.py, request_ids.py, counts.py
    app.py           routes
    schema.py        JSON in and out; openapi.py: the same for machines
    served.py        a model directory that answers requests
    batching.py      many small requests become few kernel calls
    logs.py          the server's log
    page/            the page in the browser: no build step, nothing loaded from other sites

Needs ``pip install 'umpteen[serve]'``.
"""
