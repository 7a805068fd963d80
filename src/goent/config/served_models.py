"""Adds what the user's own servers offer to what the files say."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from goent.domain.local_servers import Listing
from goent.domain.settings import Settings
from goent.domain.types import Provider


def with_served_models(settings: Settings, listings: Mapping[str, Listing]) -> Settings:
    """Windows where no file gives one, and models that nobody wrote down; those come last."""
    listings = {
        name: listing
        for name, listing in listings.items()
        if name in settings.backends and settings.backends[name].base_url == listing.base_url
    }
    if not any(listing.models for listing in listings.values()):
        return settings
    written = tuple(_completed(provider, listings) for provider in settings.providers)
    names = {provider.name for provider in written}
    models = {(provider.backend, provider.model) for provider in written}
    found = tuple(
        provider
        for provider in _listed(listings)
        if provider.name not in names and not _is_known(provider, models)
    )
    providers = (*written, *found)
    default = settings.default_provider
    if default is None and len(providers) == 1:
        providers = (replace(providers[0], listed=False),)  # nothing else can be meant
        default = providers[0].name
    return replace(settings, providers=providers, default_provider=default)


def _completed(provider: Provider, listings: Mapping[str, Listing]) -> Provider:
    listing = listings.get(provider.backend)
    served = listing.find(provider.model) if listing else None
    if served is None or provider.context_limit:
        return provider
    return replace(provider, context_limit=served.window)


def _listed(listings: Mapping[str, Listing]) -> Iterator[Provider]:
    for backend, listing in listings.items():
        for served in listing.models:
            yield Provider(
                name=f"{backend}/{served.name}",
                backend=backend,
                model=served.name,
                context_limit=served.window,
                listed=True,
            )


def _is_known(provider: Provider, models: set[tuple[str, str]]) -> bool:
    short = provider.model.removesuffix(":latest")
    return not models.isdisjoint({(provider.backend, provider.model), (provider.backend, short)})
