"""The one exception that means: the user can mend this."""


class ConfigError(Exception):
    """A user's mistake, told in one sentence that names the key, the value and the fix.

    Entry points print it on stderr and exit with code 2. It is raised before anything is written.
    """
