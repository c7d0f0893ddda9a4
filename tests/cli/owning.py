"""An app with a type whose fields have owners. Its hook is not known to the command line."""

import headway
from headway import field


@headway.message
class Spec:
    image: str = field(1)
    replicas: int = field(2)


@headway.message
class Service:
    title: str = field(1)
    spec: Spec = field(2)
    labels: dict[str, str] = field(3)
    hosts: list[str] = field(4)
    ports: dict[int, bool] = field(5)
    canary: Spec | None = field(6)


def lower(resource: headway.Resource[Service]) -> None:
    resource.data.title = resource.data.title.lower()


app = headway.App("shop")
SERVICE = app.type("shop", "v1", "Service", Service, owned_fields=True, hooks=headway.Hooks(mutate=lower))
