import pytest
from anyio._core import _eventloop

# The vendors' SDKs bring sniffio, by which a fixture that outlives its test makes `anyio.run` in
# another one believe that it is inside a loop. Without it anyio asks asyncio itself.
_eventloop.sniffio = None  # pyright: ignore[reportPrivateImportUsage]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
