"""Kills what writes models, at random points, and looks at what is left.

    python -m tests.crash --points 300 --seed 0 --output tests/records/crash.md

Each point is a process of its own that does one piece of work and ends by SIGKILL (or SIGXFSZ) in the middle of it:

    step   before its n-th step on disk: a file opened, synced, renamed or removed, a directory made; n is drawn
    torn   in the middle of a write: the kernel takes part of it, and kills (a limit on file size, drawn)
    clock  after a time that is drawn, wherever it is: in a kernel, in a write, between two

Afterwards what was there before must be there still, byte for byte; the place that was written must hold the old
model, the new one, none, or an unfinished one that says so; and the same work done again must end with the bytes it
would have ended with. What a power cut does to caches is not tried: a killed process's writes are not lost.
"""
