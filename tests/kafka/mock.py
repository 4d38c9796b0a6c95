"""librdkafka's own mock of a Kafka cluster, whose answers a test may order; it comes with the client's wheel.

It stamps no append time, isolates no transactions and fences nobody: what rests on those is tested on a real broker.
"""

from __future__ import annotations

import ctypes as c
from pathlib import Path
from typing import Any, Final

import confluent_kafka

# Numbers of requests and errors, from Kafka's protocol.
PRODUCE: Final = 0
END_TXN: Final = 26
NOT_ENOUGH_REPLICAS: Final = 19
COORDINATOR_LOADING: Final = 14
MESSAGE_TOO_LARGE: Final = 10
INVALID_TXN_STATE: Final = 48
_PRODUCER: Final = 0


def _library() -> Any:
    root = Path(confluent_kafka.__file__).parent
    found = sorted(root.parent.glob("confluent_kafka.libs/librdkafka-*.so*"))
    library = c.CDLL(str(found[0]))
    handle, text, number = c.c_void_p, c.c_char_p, c.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", handle, []),
        ("rd_kafka_conf_set", number, [handle, text, text, text, c.c_size_t]),
        ("rd_kafka_new", handle, [number, handle, text, c.c_size_t]),
        ("rd_kafka_destroy", None, [handle]),
        ("rd_kafka_mock_cluster_new", handle, [handle, number]),
        ("rd_kafka_mock_cluster_destroy", None, [handle]),
        ("rd_kafka_mock_cluster_bootstraps", text, [handle]),
        ("rd_kafka_mock_topic_create", number, [handle, text, number, number]),
        ("rd_kafka_mock_broker_set_down", number, [handle, c.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [handle, c.c_int32]),
        ("rd_kafka_mock_push_request_errors_array", None, [handle, c.c_int16, c.c_size_t, c.POINTER(number)]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockCluster:
    """A cluster of one broker within this process."""

    def __init__(self) -> None:
        self._library = _library()
        said = c.create_string_buffer(512)
        conf = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", said, 512)
        self._client = self._library.rd_kafka_new(_PRODUCER, conf, said, 512)
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return str(self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode())

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic."""
        assert self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1) == 0

    def refuse(self, request: int, *errors: int) -> None:
        """Answer the next requests of a kind with these errors."""
        ordered = (c.c_int * len(errors))(*errors)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, request, len(errors), ordered)

    def close(self) -> None:
        """End the cluster."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)
