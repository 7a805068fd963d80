"""How is a worker run by nothing but a model's API?"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from goent.domain.ports import Session, WorkerSpec
from goent.drivers.api.session import ApiSession
from goent.upstream.ask import Upstream
from goent.upstream.course import Course

PlanCourse = Callable[[str, str, str], Course]


class ApiDriver:
    """The port `Driver`, by direct calls. `plan` says where a worker's calls may go."""

    def __init__(self, upstream: Upstream, plan: PlanCourse) -> None:
        self._upstream = upstream
        self._plan = plan

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[Session]:
        def course() -> Course:
            return self._plan(spec.id, spec.provider.backend, spec.provider.model)

        course()  # a key that is missing is told now, not at the first prompt
        yield ApiSession(spec, self._upstream, course)
