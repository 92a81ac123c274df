"""Generated from kio by `python -m odradek_protocol.messages.generate`. Do not edit.

APIS: per API key, kio's name, the lowest and highest version that kio knows, and the first
flexible version (highest + 1 if none is).
REQUEST_FIELDS, RESPONSE_FIELDS: per API and class, the fields that some versions of that class
have and others lack, with the default that stands in for them.
"""

# fmt: off
from odradek_protocol.messages.struct import Struct

APIS: dict[int, tuple[str, int, int, int]] = {
    0: ("produce", 3, 13, 9),
    1: ("fetch", 4, 18, 12),
    2: ("list_offsets", 1, 11, 6),
    3: ("metadata", 0, 13, 9),
    8: ("offset_commit", 2, 10, 8),
    9: ("offset_fetch", 1, 10, 6),
    10: ("find_coordinator", 0, 6, 3),
    11: ("join_group", 0, 9, 6),
    12: ("heartbeat", 0, 4, 4),
    13: ("leave_group", 0, 5, 4),
    14: ("sync_group", 0, 5, 4),
    15: ("describe_groups", 0, 6, 5),
    16: ("list_groups", 0, 5, 3),
    17: ("sasl_handshake", 0, 1, 2),
    18: ("api_versions", 0, 4, 3),
    19: ("create_topics", 2, 7, 5),
    20: ("delete_topics", 1, 6, 4),
    21: ("delete_records", 0, 2, 2),
    22: ("init_producer_id", 0, 6, 2),
    23: ("offset_for_leader_epoch", 2, 4, 4),
    24: ("add_partitions_to_txn", 0, 5, 3),
    25: ("add_offsets_to_txn", 0, 4, 3),
    26: ("end_txn", 0, 5, 3),
    27: ("write_txn_markers", 1, 2, 1),
    28: ("txn_offset_commit", 0, 5, 3),
    29: ("describe_acls", 1, 3, 2),
    30: ("create_acls", 1, 3, 2),
    31: ("delete_acls", 1, 3, 2),
    32: ("describe_configs", 1, 4, 4),
    33: ("alter_configs", 0, 2, 2),
    34: ("alter_replica_log_dirs", 1, 2, 2),
    35: ("describe_log_dirs", 1, 5, 2),
    36: ("sasl_authenticate", 0, 2, 2),
    37: ("create_partitions", 0, 3, 2),
    38: ("create_delegation_token", 1, 3, 2),
    39: ("renew_delegation_token", 1, 2, 2),
    40: ("expire_delegation_token", 1, 2, 2),
    41: ("describe_delegation_token", 1, 3, 2),
    42: ("delete_groups", 0, 2, 2),
    43: ("elect_leaders", 0, 2, 2),
    44: ("incremental_alter_configs", 0, 1, 1),
    45: ("alter_partition_reassignments", 0, 1, 0),
    46: ("list_partition_reassignments", 0, 0, 0),
    47: ("offset_delete", 0, 0, 1),
    48: ("describe_client_quotas", 0, 1, 1),
    49: ("alter_client_quotas", 0, 1, 1),
    50: ("describe_user_scram_credentials", 0, 0, 0),
    51: ("alter_user_scram_credentials", 0, 0, 0),
    52: ("vote", 0, 2, 0),
    53: ("begin_quorum_epoch", 0, 1, 1),
    54: ("end_quorum_epoch", 0, 1, 1),
    55: ("describe_quorum", 0, 2, 0),
    56: ("alter_partition", 2, 3, 2),
    57: ("update_features", 0, 2, 0),
    58: ("envelope", 0, 0, 0),
    59: ("fetch_snapshot", 0, 1, 0),
    60: ("describe_cluster", 0, 2, 0),
    61: ("describe_producers", 0, 0, 0),
    62: ("broker_registration", 0, 4, 0),
    63: ("broker_heartbeat", 0, 2, 0),
    64: ("unregister_broker", 0, 0, 0),
    65: ("describe_transactions", 0, 0, 0),
    66: ("list_transactions", 0, 2, 0),
    67: ("allocate_producer_ids", 0, 0, 0),
    68: ("consumer_group_heartbeat", 0, 1, 0),
    69: ("consumer_group_describe", 0, 1, 0),
    70: ("controller_registration", 0, 0, 0),
    71: ("get_telemetry_subscriptions", 0, 0, 0),
    72: ("push_telemetry", 0, 0, 0),
    73: ("assign_replicas_to_dirs", 0, 0, 0),
    74: ("list_config_resources", 0, 1, 0),
    75: ("describe_topic_partitions", 0, 0, 0),
    76: ("share_group_heartbeat", 1, 1, 1),
    77: ("share_group_describe", 1, 1, 1),
    78: ("share_fetch", 1, 2, 1),
    79: ("share_acknowledge", 1, 2, 1),
    80: ("add_raft_voter", 0, 1, 0),
    81: ("remove_raft_voter", 0, 0, 0),
    82: ("update_raft_voter", 0, 0, 0),
    83: ("initialize_share_group_state", 0, 0, 0),
    84: ("read_share_group_state", 0, 0, 0),
    85: ("write_share_group_state", 0, 1, 0),
    86: ("delete_share_group_state", 0, 0, 0),
    87: ("read_share_group_state_summary", 0, 1, 0),
    88: ("streams_group_heartbeat", 0, 0, 0),
    89: ("streams_group_describe", 0, 0, 0),
    90: ("describe_share_group_offsets", 0, 1, 0),
    91: ("alter_share_group_offsets", 0, 0, 0),
    92: ("delete_share_group_offsets", 0, 0, 0),
}

REQUEST_FIELDS: dict[str, dict[str, dict[str, object]]] = {
    "produce": {
        "TopicProduceData": {
            "name": '',
            "topic_id": None,
        },
    },
    "fetch": {
        "FetchPartition": {
            "log_start_offset": -1,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "replica_directory_id": None,
            "high_watermark": 9223372036854775807,
        },
        "FetchTopic": {
            "topic": '',
            "topic_id": None,
        },
        "FetchRequest": {
            "replica_id": -1,
            "session_id": 0,
            "session_epoch": -1,
            "forgotten_topics_data": (),
            "rack_id": '',
            "cluster_id": None,
            "replica_state": Struct(replica_id=-1, replica_epoch=-1),
        },
        "ForgottenTopic": {
            "topic": '',
            "topic_id": None,
        },
    },
    "list_offsets": {
        "ListOffsetsPartition": {
            "current_leader_epoch": -1,
        },
        "ListOffsetsRequest": {
            "isolation_level": 0,
            "timeout": 0,
        },
    },
    "metadata": {
        "MetadataRequestTopic": {
            "topic_id": None,
        },
        "MetadataRequest": {
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
    },
    "offset_commit": {
        "OffsetCommitRequestPartition": {
            "committed_leader_epoch": -1,
        },
        "OffsetCommitRequestTopic": {
            "name": '',
            "topic_id": None,
        },
        "OffsetCommitRequest": {
            "retention_time": -1,
            "group_instance_id": None,
        },
    },
    "offset_fetch": {
        "OffsetFetchRequest": {
            "group_id": '',
            "topics": (),
            "require_stable": False,
            "groups": (),
        },
        "OffsetFetchRequestTopics": {
            "name": '',
            "topic_id": None,
        },
        "OffsetFetchRequestGroup": {
            "member_id": None,
            "member_epoch": -1,
        },
    },
    "find_coordinator": {
        "FindCoordinatorRequest": {
            "key": '',
            "key_type": 0,
            "coordinator_keys": (),
        },
    },
    "join_group": {
        "JoinGroupRequest": {
            "rebalance_timeout": -1,
            "group_instance_id": None,
            "reason": None,
        },
    },
    "heartbeat": {
        "HeartbeatRequest": {
            "group_instance_id": None,
        },
    },
    "leave_group": {
        "LeaveGroupRequest": {
            "member_id": '',
            "members": (),
        },
        "MemberIdentity": {
            "reason": None,
        },
    },
    "sync_group": {
        "SyncGroupRequest": {
            "group_instance_id": None,
            "protocol_type": None,
            "protocol_name": None,
        },
    },
    "describe_groups": {
        "DescribeGroupsRequest": {
            "include_authorized_operations": False,
        },
    },
    "list_groups": {
        "ListGroupsRequest": {
            "states_filter": (),
            "types_filter": (),
        },
    },
    "api_versions": {
        "ApiVersionsRequest": {
            "client_software_name": '',
            "client_software_version": '',
        },
    },
    "delete_topics": {
        "DeleteTopicsRequest": {
            "topic_names": (),
            "topics": (),
        },
    },
    "init_producer_id": {
        "InitProducerIdRequest": {
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        },
    },
    "offset_for_leader_epoch": {
        "OffsetForLeaderEpochRequest": {
            "replica_id": -2,
        },
    },
    "add_partitions_to_txn": {
        "AddPartitionsToTxnRequest": {
            "v3_and_below_transactional_id": '',
            "v3_and_below_producer_id": 0,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": (),
            "transactions": (),
        },
    },
    "write_txn_markers": {
        "WritableTxnMarker": {
            "transaction_version": 0,
        },
    },
    "txn_offset_commit": {
        "TxnOffsetCommitRequestPartition": {
            "committed_leader_epoch": -1,
        },
        "TxnOffsetCommitRequest": {
            "generation_id": -1,
            "member_id": '',
            "group_instance_id": None,
        },
    },
    "describe_configs": {
        "DescribeConfigsRequest": {
            "include_documentation": False,
        },
    },
    "create_delegation_token": {
        "CreateDelegationTokenRequest": {
            "owner_principal_type": None,
            "owner_principal_name": None,
        },
    },
    "elect_leaders": {
        "ElectLeadersRequest": {
            "election_type": 0,
        },
    },
    "alter_partition_reassignments": {
        "AlterPartitionReassignmentsRequest": {
            "allow_replication_factor_change": True,
        },
    },
    "vote": {
        "PartitionData": {
            "replica_directory_id": None,
            "voter_directory_id": None,
            "pre_vote": False,
        },
        "VoteRequest": {
            "voter_id": -1,
        },
    },
    "begin_quorum_epoch": {
        "PartitionData": {
            "voter_directory_id": None,
        },
        "BeginQuorumEpochRequest": {
            "voter_id": -1,
            "leader_endpoints": (),
        },
    },
    "end_quorum_epoch": {
        "PartitionData": {
            "preferred_successors": (),
            "preferred_candidates": (),
        },
        "EndQuorumEpochRequest": {
            "leader_endpoints": (),
        },
    },
    "alter_partition": {
        "PartitionData": {
            "new_isr": (),
            "new_isr_with_epochs": (),
        },
    },
    "update_features": {
        "FeatureUpdateKey": {
            "allow_downgrade": False,
            "upgrade_type": 1,
        },
        "UpdateFeaturesRequest": {
            "validate_only": False,
        },
    },
    "fetch_snapshot": {
        "PartitionSnapshot": {
            "replica_directory_id": None,
        },
    },
    "describe_cluster": {
        "DescribeClusterRequest": {
            "endpoint_type": 1,
            "include_fenced_brokers": False,
        },
    },
    "broker_registration": {
        "BrokerRegistrationRequest": {
            "is_migrating_zk_broker": False,
            "log_dirs": (),
            "previous_broker_epoch": -1,
        },
    },
    "broker_heartbeat": {
        "BrokerHeartbeatRequest": {
            "offline_log_dirs": (),
            "cordoned_log_dirs": None,
        },
    },
    "list_transactions": {
        "ListTransactionsRequest": {
            "duration_filter": -1,
            "transactional_id_pattern": None,
        },
    },
    "consumer_group_heartbeat": {
        "ConsumerGroupHeartbeatRequest": {
            "subscribed_topic_regex": None,
        },
    },
    "list_config_resources": {
        "ListConfigResourcesRequest": {
            "resource_types": (),
        },
    },
    "share_fetch": {
        "ShareFetchRequest": {
            "share_acquire_mode": 0,
            "is_renew_ack": False,
        },
    },
    "share_acknowledge": {
        "ShareAcknowledgeRequest": {
            "is_renew_ack": False,
        },
    },
    "add_raft_voter": {
        "AddRaftVoterRequest": {
            "ack_when_committed": True,
        },
    },
    "write_share_group_state": {
        "PartitionData": {
            "delivery_complete_count": -1,
        },
    },
}

RESPONSE_FIELDS: dict[str, dict[str, dict[str, object]]] = {
    "produce": {
        "PartitionProduceResponse": {
            "log_start_offset": -1,
            "record_errors": (),
            "error_message": None,
            "current_leader": Struct(leader_id=-1, leader_epoch=-1),
        },
        "TopicProduceResponse": {
            "name": '',
            "topic_id": None,
        },
        "ProduceResponse": {
            "node_endpoints": (),
        },
    },
    "fetch": {
        "PartitionData": {
            "log_start_offset": -1,
            "preferred_read_replica": -1,
            "diverging_epoch": Struct(epoch=-1, end_offset=-1),
            "current_leader": Struct(leader_id=-1, leader_epoch=-1),
            "snapshot_id": Struct(end_offset=-1, epoch=-1),
        },
        "FetchableTopicResponse": {
            "topic": '',
            "topic_id": None,
        },
        "FetchResponse": {
            "error_code": 0,
            "session_id": 0,
            "node_endpoints": (),
        },
    },
    "list_offsets": {
        "ListOffsetsPartitionResponse": {
            "leader_epoch": -1,
        },
        "ListOffsetsResponse": {
            "throttle_time": 0,
        },
    },
    "metadata": {
        "MetadataResponseBroker": {
            "rack": None,
        },
        "MetadataResponsePartition": {
            "offline_replicas": (),
            "leader_epoch": -1,
        },
        "MetadataResponseTopic": {
            "is_internal": False,
            "topic_authorized_operations": -2147483648,
            "topic_id": None,
        },
        "MetadataResponse": {
            "controller_id": -1,
            "cluster_id": None,
            "throttle_time": 0,
            "cluster_authorized_operations": -2147483648,
            "error_code": 0,
        },
    },
    "offset_commit": {
        "OffsetCommitResponseTopic": {
            "name": '',
            "topic_id": None,
        },
        "OffsetCommitResponse": {
            "throttle_time": 0,
        },
    },
    "offset_fetch": {
        "OffsetFetchResponsePartition": {
            "committed_leader_epoch": -1,
        },
        "OffsetFetchResponse": {
            "topics": (),
            "error_code": 0,
            "throttle_time": 0,
            "groups": (),
        },
        "OffsetFetchResponseTopics": {
            "name": '',
            "topic_id": None,
        },
    },
    "find_coordinator": {
        "FindCoordinatorResponse": {
            "error_code": 0,
            "node_id": 0,
            "host": '',
            "port": 0,
            "throttle_time": 0,
            "error_message": None,
            "coordinators": (),
        },
    },
    "join_group": {
        "JoinGroupResponseMember": {
            "group_instance_id": None,
        },
        "JoinGroupResponse": {
            "throttle_time": 0,
            "protocol_type": None,
            "skip_assignment": False,
        },
    },
    "heartbeat": {
        "HeartbeatResponse": {
            "throttle_time": 0,
        },
    },
    "leave_group": {
        "LeaveGroupResponse": {
            "throttle_time": 0,
            "members": (),
        },
    },
    "sync_group": {
        "SyncGroupResponse": {
            "throttle_time": 0,
            "protocol_type": None,
            "protocol_name": None,
        },
    },
    "describe_groups": {
        "DescribedGroupMember": {
            "group_instance_id": None,
        },
        "DescribedGroup": {
            "authorized_operations": -2147483648,
            "error_message": None,
        },
        "DescribeGroupsResponse": {
            "throttle_time": 0,
        },
    },
    "list_groups": {
        "ListedGroup": {
            "group_state": '',
            "group_type": '',
        },
        "ListGroupsResponse": {
            "throttle_time": 0,
        },
    },
    "api_versions": {
        "ApiVersionsResponse": {
            "throttle_time": 0,
            "supported_features": (),
            "finalized_features_epoch": -1,
            "finalized_features": (),
            "zk_migration_ready": False,
        },
    },
    "create_topics": {
        "CreatableTopicResult": {
            "topic_config_error_code": 0,
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": (),
            "topic_id": None,
        },
    },
    "delete_topics": {
        "DeletableTopicResult": {
            "error_message": None,
            "topic_id": None,
        },
    },
    "init_producer_id": {
        "InitProducerIdResponse": {
            "ongoing_txn_producer_id": -1,
            "ongoing_txn_producer_epoch": -1,
        },
    },
    "add_partitions_to_txn": {
        "AddPartitionsToTxnResponse": {
            "results_by_topic_v3_and_below": (),
            "error_code": 0,
            "results_by_transaction": (),
        },
    },
    "end_txn": {
        "EndTxnResponse": {
            "producer_id": -1,
            "producer_epoch": -1,
        },
    },
    "describe_configs": {
        "DescribeConfigsResourceResult": {
            "config_type": 0,
            "documentation": None,
        },
    },
    "describe_log_dirs": {
        "DescribeLogDirsResult": {
            "total_bytes": -1,
            "usable_bytes": -1,
            "is_cordoned": False,
        },
        "DescribeLogDirsResponse": {
            "error_code": 0,
        },
    },
    "sasl_authenticate": {
        "SaslAuthenticateResponse": {
            "session_lifetime": 0,
        },
    },
    "create_delegation_token": {
        "CreateDelegationTokenResponse": {
            "token_requester_principal_type": '',
            "token_requester_principal_name": '',
        },
    },
    "describe_delegation_token": {
        "DescribedDelegationToken": {
            "token_requester_principal_type": '',
            "token_requester_principal_name": '',
        },
    },
    "elect_leaders": {
        "ElectLeadersResponse": {
            "error_code": 0,
        },
    },
    "alter_partition_reassignments": {
        "AlterPartitionReassignmentsResponse": {
            "allow_replication_factor_change": True,
        },
    },
    "vote": {
        "VoteResponse": {
            "node_endpoints": (),
        },
    },
    "begin_quorum_epoch": {
        "BeginQuorumEpochResponse": {
            "node_endpoints": (),
        },
    },
    "end_quorum_epoch": {
        "EndQuorumEpochResponse": {
            "node_endpoints": (),
        },
    },
    "describe_quorum": {
        "ReplicaState": {
            "last_fetch_timestamp": -1,
            "last_caught_up_timestamp": -1,
            "replica_directory_id": None,
        },
        "PartitionData": {
            "error_message": None,
        },
        "DescribeQuorumResponse": {
            "error_message": None,
            "nodes": (),
        },
    },
    "update_features": {
        "UpdateFeaturesResponse": {
            "results": (),
        },
    },
    "fetch_snapshot": {
        "FetchSnapshotResponse": {
            "node_endpoints": (),
        },
    },
    "describe_cluster": {
        "DescribeClusterBroker": {
            "is_fenced": False,
        },
        "DescribeClusterResponse": {
            "endpoint_type": 1,
        },
    },
    "consumer_group_describe": {
        "Member": {
            "member_type": -1,
        },
    },
    "list_config_resources": {
        "ConfigResource": {
            "resource_type": 16,
        },
    },
    "share_acknowledge": {
        "ShareAcknowledgeResponse": {
            "acquisition_lock_timeout": 0,
        },
    },
    "read_share_group_state_summary": {
        "PartitionResult": {
            "delivery_complete_count": -1,
        },
    },
    "describe_share_group_offsets": {
        "DescribeShareGroupOffsetsResponsePartition": {
            "lag": -1,
        },
    },
}
