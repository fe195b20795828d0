"""The launcher of a site's programs: joins the namespaces, dies with the parent, turns into them."""

from __future__ import annotations

import os
import sys

from runtime.emulate.syscalls import CLONE_NEWNET, CLONE_NEWUSER, die_with_parent, setns


def main() -> None:
    """Arguments: parent's process id, user namespace fd or -1, network namespace fd, program."""
    parent, user, network = (int(text) for text in sys.argv[1:4])
    program = sys.argv[4:]
    if user >= 0:
        setns(user, CLONE_NEWUSER)
        os.close(user)
    setns(network, CLONE_NEWNET)
    os.close(network)
    die_with_parent(parent)  # after setns, which clears it when it changes capabilities
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        os._exit(127)
