"""The one exception that means: the user can mend this."""


class ConfigError(Exception):
    """A user's mistake, told in one sentence that names the key, the value and the fix.

    Entry points print it on stderr and exit with code 2. It is raised before anything is written.
    """

    def __init__(self, sentence: str) -> None:
        """A value or a library's message in it may have lines, a sentence has none."""
        super().__init__(" ".join(sentence.splitlines()))


def first_line(error: Exception) -> str:
    """What a library's error says, its first line; its type where it says nothing."""
    return (str(error) or type(error).__name__).splitlines()[0]


def of_path(error: OSError) -> str:
    """The sentence for what the system refuses; raises the error again where it names no path."""
    if error.filename is None:
        raise error
    return (
        f"{error.filename} cannot be used ({error.strerror}): name another path, or mend this one's"
        " permissions"
    )
