"""How does one call of a worker's program get its answer?"""

import anyio

from goent.domain.errors import WorkerError
from goent.gateway import http
from goent.gateway.calls import OpenCall
from goent.gateway.http import Receive, Send
from goent.gateway.outlet import Outlet
from goent.gateway.refusals import refusal
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, Order


async def answer(
    call: OpenCall, upstream: Upstream, order: Order, course: Course, receive: Receive, send: Send
) -> None:
    """Ends when the answer has been passed on, or when the client is gone."""
    async with anyio.create_task_group() as beside:
        beside.start_soon(_hang_up, call, receive)
        if order.stream:
            outlet = Outlet(send, order)
            beside.start_soon(outlet.pour)
            beside.start_soon(outlet.keep_alive)
            await _stream(call, upstream, order, course, outlet)
        else:
            await _plain(call, upstream, order, course, send)
        beside.cancel_scope.cancel()


async def _hang_up(call: OpenCall, receive: Receive) -> None:
    await http.hung_up(receive)
    call.scope.cancel()


async def _stream(
    call: OpenCall, upstream: Upstream, order: Order, course: Course, outlet: Outlet
) -> None:
    try:
        await upstream.stream(order, course, outlet.take)
    except WorkerError as error:
        call.counted.set()
        await outlet.fail(error)
    else:
        call.counted.set()
        await outlet.finish()


async def _plain(
    call: OpenCall, upstream: Upstream, order: Order, course: Course, send: Send
) -> None:
    try:
        body = await upstream.plain(order, course)
    except WorkerError as error:
        call.counted.set()
        told = refusal(error)
        await http.refuse(send, order.dialect, *told)
    else:
        call.counted.set()
        await http.reply(send, 200, http.JSON, body)
