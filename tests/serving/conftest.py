"""Fixtures of the tests of serving."""

from __future__ import annotations

from tests.serving.export_fixtures import (  # noqa: F401  (fixtures are found by name here)
    answers,
    ask,
    exports,
    images,
    make_request,
    make_run,
)
from tests.serving.litert_fixtures import litert_exports  # noqa: F401
from tests.serving.server_fixtures import (  # noqa: F401
    caller,
    held,
    place,
    serving,
    toy_exports,
)
