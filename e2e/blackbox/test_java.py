"""Apache Kafka's own scripts: console clients, groups, transactions."""

from blackbox.shared import shared
from broker_tests.clients import test_java_admin, test_java_data, test_java_groups
from broker_tests.clients import test_java_transactions as java_transactions

FILES = "reads the server's files"

globals().update(shared(test_java_data))
globals().update(shared(test_java_groups))
globals().update(shared(java_transactions, {"test_the_dump_tool_reads_our_transaction_log": FILES}))
globals().update(
    shared(
        test_java_admin,
        {
            "test_cluster_id_api_versions_and_features": FILES,
            "test_the_password_of_a_new_user_is_not_logged": "reads the server's log",
            "test_topic_deletion_frees_the_directory": FILES,
        },
    )
)
