"""Many agents that meet in one store, each a thread of this process."""

import logging
import os
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from threading import Thread
from typing import Any

_PATIENCE_S = 300


def connected(clients: int) -> float:
    """Seconds until so many clients of one store have written to it."""
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    from torch.distributed import TCPStore

    kept: list[Any] = []

    def connect(port: int) -> None:
        kept.append(TCPStore("127.0.0.1", port, None, False, timedelta(seconds=_PATIENCE_S)))
        kept[-1].add("met", 1)

    host = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=_PATIENCE_S))
    # The first ones look for names of hosts, for which a machine without a name server waits.
    seconds = [_together(clients, lambda _: connect(host.port)) for _ in range(2)]
    assert host.add("met", 0) == 2 * clients
    return min(seconds)


def met(agents: int) -> dict[str, float]:
    """What torchrun's rendezvous writes, sends and takes until so many agents have met."""
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    logging.disable(logging.ERROR)
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    host = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=_PATIENCE_S))
    counts, places, handlers = Counter[str](), list[int](), list[Any]()

    def meet(_: int) -> None:
        where = f"127.0.0.1:{host.port}"
        asked = {"is_host": "false", "join_timeout": str(_PATIENCE_S)}
        parameters = RendezvousParameters("c10d", where, "scale", agents, agents, **asked)
        backend, store = create_backend(parameters)
        _count(backend, counts)
        handlers.append(create_handler(store, backend, parameters))
        places.append(handlers[-1].next_rendezvous().rank)

    seconds = _together(agents, meet)
    assert sorted(places) == list(range(agents))
    for handler in handlers:
        handler.shutdown()
    logging.disable(logging.NOTSET)
    written, read, sent = (counts[name] for name in ("set", "get", "bytes"))
    return {"writes": written, "reads": read, "MiB": sent / 2**20, "seconds": seconds}


def _count(backend: Any, counts: Counter[str]) -> None:
    """The calls of one agent, and the bytes that go to and fro."""
    write, read = backend.set_state, backend.get_state

    def counted_write(state: bytes, token: Any = None) -> Any:
        answer = write(state, token)
        counts.update(set=1, bytes=len(state) + (len(answer[0]) if answer else 0))
        return answer

    def counted_read() -> Any:
        answer = read()
        counts.update(get=1, bytes=len(answer[0]) if answer else 0)
        return answer

    backend.set_state, backend.get_state = counted_write, counted_read


def _together(count: int, act: Callable[[int], None]) -> float:
    threads = [Thread(target=act, args=(index,)) for index in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began
