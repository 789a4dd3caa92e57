from collections.abc import Callable, Iterator

from framp.client import Client
from framp.engines import Serial
from framp.federation import Federation
from framp.messages import Describe, Description, Message

MakeFederation = Callable[..., Federation]


def test_messages_are_answered_in_their_order_one_at_a_time(toy_federation: MakeFederation) -> None:
    federation = toy_federation()
    engine = Serial(Client(federation.architecture, federation.data))
    taken: list[int] = []

    def messages() -> Iterator[Message]:
        for client in (3, 1, 2):
            taken.append(client)
            yield Describe(client, 0)

    replies = engine.exchange(messages())
    assert taken == []
    for count, client in enumerate((3, 1, 2), start=1):
        reply = next(replies)
        assert isinstance(reply, Description)
        assert reply.client == client
        assert taken == [3, 1, 2][:count]  # the next task is not made before it is wanted
    assert list(replies) == []
    assert list(engine.exchange([])) == []
    engine.close()
