"""The input of `flymq demo`: generated orders of a shop, at a varying rate."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flymq.client.serializers import to_json
from flymq.client.sync.client import FlyMQClient

TOPIC = "orders"
SCHEMA = "category STRING, amount DOUBLE"
"""The fields that the pipeline uses."""

_CATEGORIES = {"coffee": (30, 9.5), "tea": (24, 7.2), "bread": (20, 3.4), "cheese": (14, 11.9), "wine": (8, 16.5)}
"""Weight and price of each category."""
_CITIES = {"Lisbon": 5, "Lyon": 4, "Leeds": 3, "Leipzig": 3, "Lublin": 2}
_CUSTOMERS = 400

_EVERY_S = 0.1
_ORDERS_MEAN = 60
_WAVE_S = 12.0


class Feed:
    """Produces orders to the topic."""

    def __init__(self) -> None:
        self.written = 0
        self._random = random.Random(7)
        self._end = threading.Event()

    def run(self, client: FlyMQClient) -> None:
        """Write orders until stopped. Each batch is acknowledged before it is counted."""
        begun_s = time.monotonic()
        while not self._end.wait(_EVERY_S):
            wave = 1 + 0.7 * math.sin((time.monotonic() - begun_s) * 2 * math.pi / _WAVE_S)
            batch = [self._order() for _ in range(max(1, round(_ORDERS_MEAN * wave)))]
            client.produce_batch(TOPIC, [(order["customer"], to_json(order)) for order in batch])
            self.written += len(batch)

    def stop(self) -> None:
        self._end.set()

    def _order(self) -> dict[str, Any]:
        (category,) = self._random.choices(list(_CATEGORIES), [often for often, _ in _CATEGORIES.values()])
        (city,) = self._random.choices(list(_CITIES), list(_CITIES.values()))
        quantity = self._random.choice([1, 1, 1, 2, 2, 3])
        return {
            "order_id": f"{self._random.getrandbits(64):016x}",
            "customer": f"customer-{self._random.randrange(_CUSTOMERS):03}",
            "category": category,
            "city": city,
            "quantity": quantity,
            "amount": round(quantity * _CATEGORIES[category][1] * self._random.uniform(0.9, 1.1), 2),
        }


@contextmanager
def feeding(client: FlyMQClient) -> Iterator[Feed]:
    """Feed the topic in the background, for a `with` block."""
    feed = Feed()
    thread = threading.Thread(target=feed.run, args=[client], name="feed", daemon=True)
    thread.start()
    try:
        yield feed
    finally:
        feed.stop()
        thread.join()
