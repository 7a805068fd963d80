"""Why can something not be done that a client asks of the agent?"""

from goent.domain.errors import RequestError


class UnknownSession(RequestError):
    """No session has that id."""


class SessionBusy(RequestError):
    """A turn of the session is under way."""


class AuthRequired(RequestError):
    """There is no key by which a model could be asked; the message says how to give one."""
