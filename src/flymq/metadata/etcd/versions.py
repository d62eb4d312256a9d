"""Which servers are good enough.

Older ones than these can serve stale reads after a pause of the process, and 3.5.0 to 3.5.2 can corrupt their data when
they are killed. They work otherwise, so they get a warning. Before 3.4 there is no such JSON gateway.
"""

from __future__ import annotations

import re

from flymq.model.errors import MetadataServerUnsupported

_OLDEST = (3, 4)
_FIXED_IN = {(3, 5): 28, (3, 6): 9}
_FIRST_WITHOUT_FAULTS = (3, 7)


def check_version(version: str) -> str | None:
    """Return a warning, or None if the version is supported. Raises MetadataServerUnsupported."""
    if (found := re.match(r"(\d+)\.(\d+)\.(\d+)", version)) is None:
        raise MetadataServerUnsupported(f"not a version of etcd: {version!r}")
    major, minor, patch = map(int, found.groups())
    if (major, minor) < _OLDEST:
        raise MetadataServerUnsupported(f"etcd {version} is too old")
    if (major, minor) >= _FIRST_WITHOUT_FAULTS or patch >= _FIXED_IN.get((major, minor), patch + 1):
        return None
    if (major, minor) == (3, 5) and patch <= 2:
        return f"etcd {version} can corrupt its data when it is killed: upgrade to 3.5.28 or later"
    return f"etcd {version} can serve stale reads after a pause: upgrade to 3.5.28, 3.6.9 or later"
