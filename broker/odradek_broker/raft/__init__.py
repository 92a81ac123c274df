"""The quorum of the metadata log: Kafka's Raft (KIP-595, 630, 853, 996) as a state machine.

    state = start_quorum(...)                      from what is on disk
    instructions = step(state, event, now_ms)      everything after that

`step` does no I/O, reads no clock and draws random numbers only from the generator that it was
given. It keeps a `LogView` (the shape of the log: offsets, epochs, voter sets), never the data.
Its caller (`driver.py`; in simulation broker_tests/sim/raft_node.py) drives it:

1. **Start.** Open the log and fsync it (otherwise records that a crash left in the page cache
   could be counted and then lost), `LogView.load(log, bootstrap_voters)`, read the `quorum-state`
   file with `VoteState.from_json`, `start_quorum(...)`, one `Tick`.
2. **Events** are passed in one at a time: requests and responses from the network, `Tick` no later
   than `next_deadline_ms(state)`, `ClientAppend` from the controller, `Flushed` when a flush
   has ended. `now_ms` comes from a monotonic clock.
3. **Instructions** are carried out in order, and before the next event is passed in.
   `PersistVote` is always the first of its list: the file must be durable before any later
   instruction is carried out (events wait in the meantime). `AppendBatches` and `TruncateLog` are
   plain writes. `Flush` starts an fsync and does not wait: the event `Flushed`, with the generation
   of the instruction, reports its end. Flushes can be grouped: one fsync covers all that were
   requested before it began. A flush or a vote file that fails is never retried: the process
   leaves the quorum.
4. **Responses**: `Reply` goes back on the connection that its ticket stands for.
   `ReplyWithRecords` and `ReplyWithSnapshotChunk` are replies whose bytes the driver reads at
   that moment, because only the driver can read files.
5. **The controller above** gets `BecameLeader`, `LostLeadership`, `Commit`, `LeaderChanged`
   and `VotersChanged`. A write is done when `Commit` passes its last offset, and its outcome is
   unknown when `LostLeadership` comes first.
6. **Snapshots.** The controller writes a snapshot of committed records and the driver passes in
   `SnapshotCreated`, and `AdvanceLogStart` when the records that it covers may be deleted. A
   follower that is too far behind gets `WriteSnapshotChunk`s and then `LoadSnapshot`: the driver
   makes the file durable, empties the log, gives the content to the controller, and passes in
   `SnapshotLoaded` (with the voter set of the snapshot's header) before any other event.
7. **Addresses.** `Send.to` is a node id: a voter's endpoints are in the voter set, the leader's
   in `LeaderChanged`, and the driver assigns numbers to bootstrap servers. A request that could
   not be delivered is reported as `RequestFailed`.
8. **The cluster id** is checked by the driver before a request gets here. The driver also checks
   that a new voter can be reached before it passes AddRaftVoter on.

Where to read first: states.py (the table of roles), then quorum.py (`step`), election.py,
leader.py and follower.py. All of it runs under faults in broker_tests/sim.
"""
