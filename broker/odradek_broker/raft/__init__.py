"""The quorum of the metadata log: Kafka's Raft (KIP-595, 630, 853, 996) as a pure state machine.

    state = start_quorum(...)                      what the disk remembers
    instructions = step(state, event, now_ms)      everything else

`step` does no I/O, reads no clock and draws random numbers only from the generator that it was
given. It keeps a `LogView` (the shape of the log: offsets, epochs, voter sets), never the data.
Its caller (`driver.py`; in simulation broker_tests/sim/raft_node.py) drives it:

1. **Start.** Open the log and fsync it (what a crash left in the page cache must not be counted
   and then lost), `LogView.load(log, bootstrap_voters)`, read the `quorum-state` file with
   `VoteState.from_json`, `start_quorum(...)`, one `Tick`.
2. **Events** are given one at a time: requests and answers from the network, `Tick` no later
   than `next_deadline_ms(state)`, `ClientAppend` from the controller, `Flushed` when a flush
   has ended. `now_ms` comes from a monotonic clock.
3. **Instructions** are carried out in their order, and before the next event is given.
   `PersistVote` is always the first of its list: the file must be durable before anything
   after it is done (while that takes time, events wait). `Append` and `Truncate` are plain
   writes; `Flush` starts an fsync and does not wait: its end is the event `Flushed` with the
   generation of the instruction. Flushes can be grouped: one fsync answers all that were asked
   for before it began. A flush or a vote file that fails is never retried: the process leaves
   the quorum.
4. **Answers**: `Reply` goes back on the connection that its ticket stands for.
   `ReplyWithRecords` and `ReplyWithSnapshotChunk` are replies whose bytes the driver reads at
   that moment, because only it can read files.
5. **The controller above** hears `BecameLeader`, `LostLeadership`, `Commit`, `LeaderChanged`
   and `VotersChanged`. A write is done when `Commit` passes its last offset, and of unknown
   outcome when `LostLeadership` comes first.
6. **Snapshots.** The controller writes one of committed records and the driver says
   `SnapshotCreated`; `AdvanceLogStart` when retention no longer wants what it covers. A follower
   that is too far behind gets `WriteSnapshotChunk`s and then `LoadSnapshot`: the driver makes
   the file durable, empties the log, hands the content to the controller, and gives
   `SnapshotLoaded` (with the voter set of the snapshot's header) before any other event.
7. **Addresses.** `Send.to` is a node id: a voter's endpoints are in the voter set, the leader's
   in `LeaderChanged`, and bootstrap servers are given numbers by the driver. A request that
   found nobody is told as `RequestFailed`.
8. **Cluster id** is checked by the driver before a request gets here. So is that a new voter
   can be reached, before AddRaftVoter is passed on.

Where to read first: states.py (the table of roles), then quorum.py (`step`), election.py,
leader.py and follower.py. All of it runs under faults in broker_tests/sim.
"""
