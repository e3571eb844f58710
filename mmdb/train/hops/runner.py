"""The database's side of a hop: whose turn it is, where its state is, and its row.

A `HopRunner` prepares a hop, lets an `Executor` compute it, and records it. Inside PostgreSQL all
three happen in one session; on DuckDB, and where PostgreSQL has no PL/Python, the process with the
connection prepares and records, and a child process performs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter, time
from typing import Any

from blake3 import blake3

from mmdb.data.functions import find_factories, find_functions
from mmdb.data.reader import ensure_partition
from mmdb.db.connection import Connection, Row
from mmdb.errors import CandidateBusy, OutOfTurn, ReplayMismatch
from mmdb.store.states import in_flight
from mmdb.train.features.feature_cache import FeatureCache, on_features
from mmdb.train.hops.next_turn import Turn, TurnFinder
from mmdb.train.hops.warm_starts import CandidateInitialiser
from mmdb.train.ledger.ledger import CandidateRecord, Ledger
from mmdb.train.ledger.state_history import Located, NewState, Retention, locate, repeated
from mmdb.train.values.jobs import Average, Executor, MapPartition, SeveralHops
from mmdb.train.values.spec import CandidateSpec, HopResult, HopSpec, HopStep, Past, WorkerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Brought:
    """What a hop starts from, but for what the executor keeps."""

    spec: HopSpec
    state: bytes | None
    read_s: float
    find_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A computed hop, and what it took to bring its inputs."""

    result: HopResult
    state: bytes | None
    read_s: float
    find_s: float


class HopRunner:
    """Runs hops over one connection."""

    def __init__(
        self,
        connection: Connection,
        executor: Executor,
        worker: str,
        *,
        node: str | None = None,
    ) -> None:
        """Serve one session.

        Args:
            node: of a cluster that the tables are spread over, where the session is inside it.
        """
        self._connection = connection
        self._executor = executor
        self._is_spread = node is not None
        self._ledger = Ledger(connection, worker, node)
        self._in_flight = in_flight(connection, spread=self._is_spread)
        self._retention = Retention(connection, self._in_flight, spread=self._is_spread)
        self._initialiser = CandidateInitialiser(connection, executor, self._ledger)
        place = (connection, self._ledger, self._initialiser)
        self._turns = TurnFinder(*place, is_spread=self._is_spread)
        self._features = FeatureCache(connection, executor, self._ledger)

    def run_hop(
        self,
        part_id: int,
        candidate_id: int,
        epoch: int | None,
        *,
        publish: bool = True,
        past: Past | None = None,
        holders: tuple[int, ...] = (),
        at: int | None = None,
    ) -> dict[str, Any]:
        """Do one hop, whole or not at all, and return its row.

        A hop that was done before is not done again: its row is returned.

        Args:
            epoch: None for the candidate's current epoch.
            publish: leave the new state where other sessions find it; else only this one holds
                it, and another one would have to replay the hop. An epoch's end always does.
            past: on a cluster, what the driver knows, who then keeps the other nodes in order.
            holders: on a cluster, numbers of the driver's sessions with the coordinator that must
                still be there when the hop is recorded: the one that holds the run, and the one
                that waits for the hop. Without any, the hop locks its candidate itself.
            at: on a cluster, a partition of this node, which validates on rows of another one.
        Raises:
            HopError, NotFound
        """
        with self._whole():
            self._prepare(part_id, candidate_id)
            with self._connection.transaction():
                place = (candidate_id, (part_id,), epoch, publish)
                return self._hop(self._turns.find(*place, past=past, holders=holders, at=at))

    def run_hops(
        self,
        part_id: int,
        candidate_ids: Sequence[int],
        epoch: int | None,
        *,
        publish: bool = True,
        pasts: Sequence[Past | None] = (),
        holders: tuple[int, ...] = (),
        at: int | None = None,
    ) -> list[dict[str, Any]]:
        """Do one hop of each of several candidates on a partition, those of one shape at once.

        All of them or none, with the bits that each would have apart; see `run_hop`.

        Args:
            pasts: of each candidate, or none.
        Returns:
            Their rows, in the order of the candidates.
        Raises:
            HopError, NotFound
        """
        with self._whole():
            for candidate_id in candidate_ids:
                self._prepare(part_id, candidate_id)
            with self._connection.transaction():
                pairs = zip(candidate_ids, pasts or [None] * len(candidate_ids), strict=True)
                place = ((part_id,), epoch, publish)
                turns = (
                    self._turns.find(one, *place, past=past, holders=holders, at=at)
                    for one, past in pairs
                )
                if all(self._ledger.candidate(one).stacks for one in candidate_ids):
                    return self._stack([*turns])
                return [self._hop(turn) for turn in turns]  # each begins when the last has ended

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Forget what was read of candidates where it may be undone with the hop."""
        try:
            yield
            self._features.finish()
        except BaseException:
            self._features.forget()
            raise

    def run_group(
        self,
        part_ids: Sequence[int],
        candidate_id: int,
        epoch: int,
        group: WorkerGroup,
        *,
        past: Past | None = None,
        holders: tuple[int, ...] = (),
        at: int | None = None,
    ) -> list[dict[str, Any]]:
        """Do this rank's part of one round of a group; the first rank records every hop of it.

        Args:
            part_ids: in the order of the ranks; this one trains on `part_ids[group.rank]`.
            past, holders: as of `run_hop`
            at: on a cluster, a partition of this node, which may not be that of the rank.
        Returns:
            The rows of the round, in the same order; none from the other ranks.
        Raises:
            HopError, NotFound
        """
        leads = group.rank == 0
        with self._connection.transaction():
            place = (candidate_id, part_ids, epoch, True)
            turn = self._turns.find(*place, leads=leads, past=past, holders=holders, at=at)
            if isinstance(turn, list):
                return turn if leads else []
            done = self._do(turn, turn.steps[group.rank], group)
            if not leads:
                return []
            done = self._leave(turn, done)
            return [
                self._record(turn, step, replace(done, result=replace(done.result, **member)))
                for step, member in zip(turn.steps, done.result.members, strict=True)
            ]

    def begin(self, candidate_id: int) -> dict[str, Any]:
        """Settle what a candidate of a run with a warm start begins with, before its first hop.

        Its first hop does that, too. Where sessions train a candidate side by side, they must
        all find it settled.

        Where it freezes layers, it is settled how their features come to it, and to all others of
        its run.

        Returns:
            candidate_id, parent, similarity, coverage, reason and state_hash.
        Raises:
            CandidateNotFound, DatasetDropped, CandidateStopped
        """
        with self._whole():
            if self._ledger.candidate(candidate_id).freezes:
                self._features.plan_features(candidate_id)
        return self._initialiser.initialise(candidate_id)

    def merge(self, candidate_id: int, epoch: int, *, at: int | None = None) -> dict[str, Any]:
        """Average the states that an epoch's train hops left, once; return the merge's row.

        Args:
            at: on a cluster, a partition of this node, where the state is left; the caller, who
                has locked the candidate, records the row.
        Raises:
            HopError, NotFound
            OutOfTurn: not all of the epoch's train hops are done.
        """
        started = time()
        with self._connection.transaction():
            candidate = self._ledger.candidate(candidate_id)
            if at is None and not self._turns.lock(candidate):
                raise CandidateBusy(f"Candidate {candidate_id} is being merged by another session.")
            merges = self._ledger.merges(candidate_id)
            if epoch in merges:
                return {"candidate_id": candidate_id, **merges[epoch]}
            self._ledger.check_alive(candidate)
            hops = [h for h in self._ledger.train_hops(candidate_id) if h["epoch"] == epoch]
            if not candidate.averages or len(hops) < candidate.trains:
                raise OutOfTurn(
                    f"Epoch {epoch} of candidate {candidate_id} cannot be merged.",
                    hint=f"{len(hops)} of {candidate.trains} train hops are done; only the "
                    "strategy model_average merges.",
                )
            state_in = bytes(merges[epoch - 1]["state_out"]).hex() if epoch else None
            parts = [self._part_state(candidate, hop, state_in) for hop in hops]
            rows = tuple(hop["row_count"] for hop in hops)
            name, state = self._executor.compute(Average(rows), parts)
            assert state is not None
            left = NewState(
                part_id=hops[0]["part_id"] if at is None else at,
                epoch=epoch,
                state_in=state_in or "",
                state_out=name,
                state=state,
            )
            # Hops of other nodes go on from the checkpoint: a file here would serve this one alone.
            ends = epoch == candidate.row["epochs"] - 1 or at is not None
            self._retention.make_durable(candidate.row, left, ends=ends, prunes=at is None)
            row = self._ledger.merge_row(candidate, left, started)
            if at is None:
                self._ledger.add_merge(candidate.row["run_id"], row)
            return row

    # -- computing it --------------------------------------------------------

    def _prepare(self, part_id: int, candidate_id: int) -> None:
        """Have what a candidate trains on where it is kept, before its hop's transaction."""
        if self._ledger.candidate(candidate_id).freezes:
            self._features.prepare(candidate_id, part_id)

    def _hop(self, turn: Turn | list[dict[str, Any]]) -> dict[str, Any]:
        """Do the one hop whose turn it is, and return its row; or that of a hop done before."""
        if isinstance(turn, list):
            return turn[0]
        done = self._do(turn, turn.steps[0])
        return self._record(turn, turn.steps[0], self._leave(turn, done))

    def _do(self, turn: Turn, step: HopStep, group: WorkerGroup | None = None) -> _Done:
        """Bring a hop's state and partitions to the executor, and let it compute."""
        brought = self._bring(turn, step, group)
        payload = () if brought.state is None else (brought.state,)
        result, state = self._executor.compute(brought.spec, payload)
        return _Done(result=result, state=state, read_s=brought.read_s, find_s=brought.find_s)

    def _stack(self, turns: Sequence[Turn | list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """Do hops at once; each is recorded with its share of the time, one after the other."""
        ahead = [turn for turn in turns if isinstance(turn, Turn)]
        done = self._compute_all([self._bring(turn, turn.steps[0]) for turn in ahead])
        left = [self._leave(turn, one) for turn, one in zip(ahead, done, strict=True)]
        begun = min((turn.started for turn in ahead), default=0.0)
        share = (time() - begun) / max(len(ahead), 1)
        rows = iter(
            [
                self._record(
                    replace(turn, started=begun + k * share),
                    turn.steps[0],
                    one,
                    finished=begun + (k + 1) * share,
                )
                for k, (turn, one) in enumerate(zip(ahead, left, strict=True))
            ]
        )
        return [next(rows) if isinstance(turn, Turn) else turn[0] for turn in turns]

    def _compute_all(self, brought: Sequence[_Brought]) -> list[_Done]:
        """Let the executor compute several hops at once."""
        if not brought:
            return []
        states = [one.state for one in brought]
        job = SeveralHops(
            tuple(one.spec for one in brought), tuple(state is not None for state in states)
        )
        found, left = self._executor.compute(job, [s for s in states if s is not None])
        return [
            _Done(result=result, state=state, read_s=one.read_s, find_s=one.find_s)
            for one, result, state in zip(brought, found.hops, found.states(left), strict=True)
        ]

    def _bring(self, turn: Turn, step: HopStep, group: WorkerGroup | None = None) -> _Brought:
        """Bring a hop's partitions to the executor; return its state and the rest."""
        begun = perf_counter()
        found = self._locate(turn.candidate, turn.state_in, turn.left_at)
        find_s = perf_counter() - begun if found.state is not None else 0.0
        code = find_factories(self._connection), find_functions(self._connection)
        candidate = CandidateSpec.from_row(turn.candidate.row, *code).over(found.state)
        if candidate.base is not None:
            self._features.hold(candidate, turn.candidate.row["run"])
        spec = HopSpec(
            candidate=candidate.comparing(turn.candidate.parts),
            step=step,
            state_in=turn.state_in,
            environment=turn.environment,
            base=found.base,
            replays=found.replays,
            adopts=found.adopts,
            group=group,
            round=turn.steps if group else (),
        )
        if spec.candidate.frozen is None:
            read_s = self._read(spec)
        else:
            spec, read_s = self._on_features(turn.candidate, spec)
        return _Brought(spec=spec, state=found.state, read_s=read_s, find_s=find_s)

    def _locate(
        self, candidate: CandidateRecord, state_in: str | None, left_at: int | None = None
    ) -> Located:
        if state_in is not None and self._executor.held(candidate.candidate_id) == state_in:
            return Located(base=None, state=None)
        place = (candidate.row, candidate.parts, state_in, left_at)
        return locate(self._connection, self._in_flight, *place)

    def _read(self, spec: HopSpec) -> float:
        """Bring the hop's partitions to the executor; return the seconds, 0 if it had them."""
        replayed = (step for stage in spec.replays for step in stage.steps)
        found = {step.partition: step.part_id for step in (spec.step, *replayed)}
        if spec.candidate.held_out is not None:
            found[spec.candidate.held_out[1]] = spec.candidate.held_out[0]
        missing = {key: p for key, p in found.items() if not self._executor.has_partition(key)}
        begun = perf_counter()
        for key, part_id in missing.items():
            ensure_partition(self._connection, part_id, bytes.fromhex(key))
            self._executor.compute(MapPartition(key))
        return perf_counter() - begun if missing else 0.0

    def _on_features(self, candidate: CandidateRecord, spec: HopSpec) -> tuple[HopSpec, float]:
        """Bring what the steps of a hop train on; return the hop over it, and the seconds."""
        begun = perf_counter()
        replayed = [step for stage in spec.replays for step in stage.steps]
        state = spec.state_in if not replayed else spec.base
        keys = self._features.bring(candidate, spec.candidate, [spec.step, *replayed], state)
        return on_features(spec, keys), perf_counter() - begun

    def _part_state(self, candidate: CandidateRecord, hop: Row, state_in: str | None) -> bytes:
        """Return what a hop of an averaged epoch left; the hop is done again where it is lost."""
        name = bytes(hop["state_out"]).hex()
        found = self._in_flight.read(hop["part_id"], candidate.candidate_id, name)
        if found is not None and blake3(found).hexdigest() == name:
            return found
        step = repeated(hop, candidate.part(hop["part_id"]))
        turn = Turn(
            candidate=candidate,
            steps=(step,),
            state_in=state_in,
            environment=None,
            started=time(),
        )
        done = self._do(turn, step)
        if done.result.state_out != name or done.state is None:
            raise ReplayMismatch(
                f"Doing hop {hop['ordinal']} of candidate {candidate.candidate_id} again gave "
                f"state {done.result.state_out[:12]}, stored is {name[:12]}. It ran on "
                f"{step.ran_on}; now on {done.result.device}, {done.result.environment}."
            )
        return done.state

    # -- what it leaves ------------------------------------------------------

    def _leave(self, turn: Turn, done: _Done) -> _Done:
        """Leave the new state where the next hop finds it; count the seconds as storing."""
        begun = perf_counter()
        candidate, step, result = turn.candidate, turn.steps[-1], done.result
        if self._is_spread and step.ends_epoch:
            self._turns.check_lock(turn)
        left = NewState(
            part_id=turn.steps[0].part_id,
            epoch=step.epoch,
            state_in=result.state_in,
            state_out=result.state_out,
            state=done.state,
        )
        if step.validates:
            if turn.is_driven:
                return done
            now = {"objective": result.objective, "state_out": bytes.fromhex(result.state_out)}
            self._retention.prune(candidate.row, {result.state_out}, [now])
        elif candidate.averages:
            self._retention.add_part(candidate.row, left)
        elif step.ends_epoch or turn.durable:
            ends = step.ends_epoch and step.epoch == candidate.row["epochs"] - 1
            self._retention.make_durable(candidate.row, left, ends=ends, prunes=not turn.is_driven)
        else:
            self._retention.pass_on(candidate.row, left)
        store_s = result.encode_s + perf_counter() - begun
        return replace(done, result=replace(result, encode_s=store_s))

    def _record(
        self, turn: Turn, step: HopStep, done: _Done, finished: float | None = None
    ) -> dict[str, Any]:
        self._ledger.keep_strategy(turn.candidate)
        # What has written before would tell the coordinator of each query from the check on, so an
        # epoch's last hop is checked before its checkpoint: no other could take its place, and the
        # key of its row lets no second one be.
        if self._is_spread and not step.ends_epoch and step is turn.steps[0]:
            self._turns.check_lock(turn)
        return self._ledger.add_hop(
            turn.candidate,
            step,
            done.result,
            group=len(turn.steps),
            started=turn.started,
            read_s=done.read_s,
            find_s=done.find_s,
            finished=finished,
            unseals=not turn.is_driven,
        )
