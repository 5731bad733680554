"""umpteen peers"""

from __future__ import annotations

from typing import Annotated

import typer

from umpteen.cli.options import print_text

app = typer.Typer()


@app.callback(invoke_without_command=True)
def peers(context: typer.Context) -> None:
    """List the other programs that `umpteen compare` can run, and install them.

    Each has an environment of its own, in the user's cache directory or in $UMPTEEN_PEERS.

    umpteen peers

    umpteen peers install omikuji napkinxc
    """
    if context.invoked_subcommand is not None:
        return
    from umpteen.comparing.programs import PEERS, peer_python

    for peer, packages in PEERS.items():
        python = peer_python(peer)
        pinned = next(package for package in packages if "==" in package)
        print_text(f"{peer:10} {pinned:28} {python.parent.parent if python.exists() else 'not installed'}")


@app.command()
def install(
    names: Annotated[list[str] | None, typer.Argument(metavar="PEER", help="Peers to install. Default: all.")] = None,
) -> None:
    """Install peers with pip, in the versions that `umpteen peers` lists.

    umpteen peers install omikuji napkinxc
    """
    import subprocess

    from umpteen.comparing.programs import PEERS, check_peer, create_environment
    from umpteen.comparing.running import last_line

    chosen = names or list(PEERS)
    for peer in chosen:
        check_peer(peer)  # before the long work, not after it
    failed = False
    for peer in chosen:
        try:
            print_text(f"{peer:10} {create_environment(peer)}")
        except subprocess.CalledProcessError as error:
            failed = True
            print_text(f"{peer:10} failed: {last_line(error.output or '')}", err=True)
    if failed:
        raise typer.Exit(1)
