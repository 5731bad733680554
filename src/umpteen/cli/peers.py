"""umpteen peers"""

from __future__ import annotations

from typing import Annotated

import typer

from umpteen.cli.options import print_text

app = typer.Typer()


@app.callback(invoke_without_command=True)
def peers(context: typer.Context) -> None:
    """List the other programs that `umpteen compare` can run, and install them.

    Each has an environment of its own, in the user's cache directory or in $UMPTEEN_PEERS. Installed packages may add
    more, which may run in this environment too.

    umpteen peers

    umpteen peers install omikuji napkinxc
    """
    if context.invoked_subcommand is not None:
        return
    from umpteen.comparing.programs import PEERS, peer_class, peer_python
    from umpteen.errors import ParamError

    for peer in PEERS:
        try:
            cls, python = peer_class(peer), peer_python(peer)
        except ParamError as error:  # of another package
            print_text(f"{peer:10} {error}")
            continue
        pinned = next((package for package in cls.packages if "==" in package), cls.package)
        print_text(f"{peer:10} {pinned:28} {python.parent.parent if python.exists() else 'not installed'}")


@app.command()
def install(
    names: Annotated[list[str] | None, typer.Argument(metavar="PEER", help="Peers to install. Default: all.")] = None,
) -> None:
    """Install peers with pip, in the versions that `umpteen peers` lists.

    umpteen peers install omikuji napkinxc
    """
    import subprocess

    from umpteen.comparing.programs import PEERS, create_environment, peer_class
    from umpteen.comparing.running import last_line

    chosen = names or list(PEERS)
    for peer in chosen:
        peer_class(peer)  # before the long work, not after it
    failed = False
    for peer in chosen:
        try:
            print_text(f"{peer:10} {create_environment(peer)}")
        except subprocess.CalledProcessError as error:
            failed = True
            print_text(f"{peer:10} failed: {last_line(error.output or '')}", err=True)
    if failed:
        raise typer.Exit(1)
