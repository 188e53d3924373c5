"""Orders in which a model of the machine takes its queues, where tokens allow."""

#: LOAD far ahead and STORE far behind, and the other way.
ORDERS = (
    ("load", "product", "element", "norm", "update", "store"),
    ("store", "update", "norm", "element", "product", "load"),
)
