"""How producers' events reach Kafka: through a bounded spool on disk, in order, however long the brokers are away."""

from producers.delivery.outbox import Broker, Outbox
from producers.delivery.spool import Spool

__all__ = ["Broker", "Outbox", "Spool"]
