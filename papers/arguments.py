"""Arguments of the commands here: a mistake is one line."""

import argparse
from typing import NoReturn

from geosim.errors import UsageError


class Arguments(argparse.ArgumentParser):
    """argparse that raises what `geosim.console.run_quietly` tells in one line."""

    def error(self, message: str) -> NoReturn:
        """A mistake of the user's.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{message}: see {self.prog} --help")
